package e2e

import (
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/gorun-mpi/mpi"
)

func init() {
	spawnScenes["circle next to a child"] = circleNextToAChild
	spawnScenes["waits for others of a child"] = waitForOthersOfAChild
	spawnScenes["waits for a child in Finalize"] = finalizeBeforeAChild
	spawnScenes["waits for a slow child"] = waitForASlowChild
}

// spawnSleeper starts a rank that is in no call for a while.
func spawnSleeper(w *mpi.Comm) (inter *mpi.Comm, err error) {
	if p := mpi.Parent(); p != nil {
		time.Sleep(sleepOf())
		return p, nil
	}
	return mpi.Spawn(w, 1, "", os.Args[1:])
}

// circleNextToAChild: the ranks of the first world wait for each other, and a spawned rank for nothing.
func circleNextToAChild(w *mpi.Comm) error {
	_, err := spawnSleeper(w)
	if err != nil || mpi.Parent() != nil {
		return err
	}
	return mpi.Ssend(w, []byte{1}, 1-w.Rank(), tagData)
}

// waitForOthersOfAChild: rank 0 waits for rank 1, which waits for the spawned rank on a communicator of all three.
func waitForOthersOfAChild(w *mpi.Comm) error {
	inter, err := spawnSleeper(w)
	if err != nil {
		return err
	}
	spawned := mpi.Parent() != nil
	all, err := inter.Merge(spawned)
	switch {
	case err != nil:
		return err
	case spawned:
		time.Sleep(sleepOf())
		return mpi.Send(all, []byte{1}, 1, tagGo)
	case w.Rank() == 0:
		_, err = mpi.Recv(w, []byte{0}, 1, tagData)
		return err
	}
	_, err = mpi.Recv(all, []byte{0}, 2, tagGo)
	return errors.Join(err, mpi.Send(w, []byte{1}, 0, tagData))
}

// finalizeBeforeAChild: the first world is at its end, and the spawned rank is not.
func finalizeBeforeAChild(w *mpi.Comm) error {
	_, err := spawnSleeper(w)
	return err
}

// waitForASlowChild: rank 0 waits in Spawn, and another goroutine of it for rank 1, which waits in Spawn too.
func waitForASlowChild(w *mpi.Comm) error {
	if mpi.Parent() != nil {
		return nil
	}
	other := make(chan error, 1)
	if w.Rank() == 0 {
		go func() {
			_, err := mpi.Recv(w, []byte{0}, 1, tagData)
			other <- err
		}()
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	script := fmt.Sprintf("sleep %d; exec %s '%s'", int(sleepOf().Seconds()), self, os.Args[1])
	if _, err := mpi.Spawn(w, 1, "sh", []string{"-c", script}); err != nil {
		return err
	}
	if w.Rank() == 1 {
		return mpi.Send(w, []byte{1}, 0, tagData)
	}
	return errors.Join(err, <-other)
}

// The ranks that wait for each other are named also while a spawned rank works.
func TestCircleNextToASpawnedRank(t *testing.T) {
	t.Parallel()
	j := run(t, spec{n: 2, role: "spawn", args: []string{"circle next to a child"},
		flags: []string{"--stall", "abort", "--timeout", "60s"}, env: []string{"WAITS_SLEEP=2m"}}, 125)
	j.says(`no rank of the first world can move: all have waited for each other for 10s`,
		`^  rank 0: Ssend to 1, tag \d+, 1 B, world, for .*, at waits_spawn_linux_test\.go:\d+$`,
		`^  0 waits for 1 waits for 0$`)
	j.nothingLeft()
}

// Ranks that wait for a spawned one can move, whichever way they wait.
func TestSpawnedRankMayHelp(t *testing.T) {
	t.Parallel()
	for _, scene := range []string{"waits for others of a child", "waits for a child in Finalize",
		"waits for a slow child"} {
		t.Run(scene, func(t *testing.T) {
			t.Parallel()
			j := run(t, spec{n: 2, role: "spawn", args: []string{scene}, flags: []string{"--stall", "500ms"},
				env: []string{"WAITS_SLEEP=3s"}}, 0)
			j.counts(map[string]int{"can move": 0})
		})
	}
}
