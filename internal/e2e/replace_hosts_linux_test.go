package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/gorun-mpi/mpi"
)

func init() {
	replaceScenes["spare"] = func(w *mpi.Comm) error {
		fmt.Printf("rank %d is on %s\n", w.Rank(), os.Getenv("HOSTNAME"))
		return replaceHost(w)
	}
	role("replace in an allocation", func(_ context.Context, w *mpi.Comm) error { return replaceInAllocation(w) })
	role("replace on hosts", func(_ context.Context, w *mpi.Comm) error { return replaceOnHosts(w) })
}

// placesThatDie are the places in the communicator of the odd ranks that die in each turn.
var placesThatDie = [][]int{{1, 2}, {0}, {1}}

// replaceOnHosts: the odd ranks have a communicator, and ranks of it die in turns. In the second turn that is the last
// rank of it that has not been replaced. The new ones say where they are.
func replaceOnHosts(w *mpi.Comm) error {
	c, err := w, error(nil)
	if isNew() {
		fmt.Printf("new in place %d on %s\n", w.Rank(), os.Getenv("HOSTNAME"))
	} else if c, err = w.Split(w.Rank()%2, w.Rank()); err != nil || w.Rank()%2 == 0 {
		return err
	}
	for turn := 0; ; turn++ {
		if turn, err = mpi.AllreduceValue(c, turn, mpi.Max[int]); err != nil || turn == len(placesThatDie) {
			return err
		}
		if err = fall(c, placesThatDie[turn]); err != nil {
			return err
		}
		if c, err = c.Replace(); err != nil {
			return err
		}
	}
}

// replaceInAllocation: rank 1 dies, and starts again.
func replaceInAllocation(w *mpi.Comm) error {
	c, place := w, w.Rank()
	if !isNew() {
		err := fall(w, []int{1})
		if err == nil {
			c, err = w.Replace()
		}
		if err != nil {
			return err
		}
	}
	if err := whole(c, 2, place); err != nil {
		return err
	}
	fmt.Printf("rank %d goes on, new: %v, on %s\n", place, isNew(), os.Getenv("SLURMD_NODENAME"))
	return nil
}

// shellTo is a remote shell that stays here, and gives each host its name in HOSTNAME. The host "lost" is lost before
// it starts a rank.
func shellTo(t *testing.T) string {
	t.Helper()
	shell := filepath.Join(t.TempDir(), "shell")
	script := "#!/bin/sh\nif [ $1 = lost ]; then echo gorun-agent 1; sleep 0.3; exit 1; fi\n" +
		"export HOSTNAME=$1; shift\nexec \"$@\"\n"
	if err := os.WriteFile(shell, []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	return shell
}

// A new rank is on the host of the dead one, whatever communicator was replaced, and however often.
func TestReplaceOnItsHost(t *testing.T) {
	t.Parallel()
	deaths := 0
	for _, dead := range placesThatDie {
		deaths += len(dead)
	}
	run(t, spec{n: 6, role: "replace on hosts", flags: []string{"--respawn", strconv.Itoa(deaths), "--launcher", "exec",
		"--launch-agent", shellTo(t), "-H", "a:2,b:2,c:2"}}, 0).counts(map[string]int{
		`^new in place 1 on b$`: 2, `^new in place 2 on c$`: 1, `^new in place 0 on a$`: 1, `^new in place`: deaths})
}

// The ranks of a lost host go to the spare, on which none was before.
func TestReplaceOnSpare(t *testing.T) {
	t.Parallel()
	run(t, spec{n: 4, role: "replace", args: []string{"spare"}, flags: []string{"--respawn", "2", "--launcher", "exec",
		"--launch-agent", shellTo(t), "-H", "a:2,lost:2,s", "--spares", "s"}}, 0).counts(
		map[string]int{`^rank [23] goes on, new: true$`: 2, `^rank [23] is on s$`: 2, `^rank [01] is on a$`: 2})
}
