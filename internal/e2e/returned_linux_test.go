package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"runtime"
	"slices"
	"sync"
	"testing"

	"github.com/gorun-mpi/mpi"
	"github.com/gorun-mpi/mpi/internal/testkit/netns"
)

func init() {
	role("returned", afterReturn)
}

// vainWaits are the calls that rank 0 makes for rank 1, which has returned or is about to. Each ends with an error.
var vainWaits = map[string]func(w *mpi.Comm) error{
	"Recv": func(w *mpi.Comm) error {
		_, err := mpi.Recv(w, []byte{0}, 1, tagData)
		return err
	},
	"Probe": func(w *mpi.Comm) error {
		_, err := mpi.Probe(w, 1, tagData)
		return err
	},
	"Ssend":     func(w *mpi.Comm) error { return mpi.Ssend(w, []byte{1}, 1, tagData) },
	"long Send": func(w *mpi.Comm) error { return mpi.Send(w, make([]byte, large), 1, tagData) },
	"Test": func(w *mpi.Comm) error {
		r, err := mpi.Irecv(w, []byte{0}, 1, tagData)
		for done := false; err == nil && !done; {
			done, _, err = r.Test()
		}
		return err
	},
	"Iprobe": func(w *mpi.Comm) error {
		return untilError(func() error { _, _, err := mpi.Iprobe(w, 1, tagData); return err })
	},
	"Improbe": func(w *mpi.Comm) error {
		return untilError(func() error { _, _, _, err := mpi.Improbe(w, 1, tagData); return err })
	},
}

// untilError calls what finds nothing in a loop, and lets other goroutines run.
func untilError(call func() error) (err error) {
	for err == nil {
		err = call()
		runtime.Gosched()
	}
	return err
}

// afterReturn: rank 1 returns when the others are ready, with a message to rank 0 on its way. Rank 3, if there is one,
// dies. Then rank 0 waits for rank 1 in all vainWaits at once, and ranks 0 and 2 are in a Barrier. The argument "stop" has
// rank 0 return the Barrier's error.
func afterReturn(_ context.Context, w *mpi.Comm) error {
	if err := mpi.Barrier(w); err != nil {
		return err
	}
	switch w.Rank() {
	case 1:
		return mpi.Send(w, make([]byte, large), 0, tagGo)
	case 3:
		die()
	case 0:
		var all sync.WaitGroup
		for name, wait := range vainWaits {
			all.Go(func() { fmt.Printf("%s ends: %v\n", name, named(wait(w))) })
		}
		if _, err := mpi.Recv(w, make([]byte, large), 1, tagGo); err != nil {
			return fmt.Errorf("the message of the rank that has returned: %w", err)
		}
		all.Wait()
	}
	err := mpi.Barrier(w)
	if fmt.Printf("Barrier of rank %d ends: %v\n", w.Rank(), named(err)); os.Args[1] == "stop" && w.Rank() == 0 {
		return err
	}
	return nil
}

// named says of which class err is.
func named(err error) error {
	if errors.Is(err, mpi.ErrPeerFailed) {
		return fmt.Errorf("peer failed: %w", err)
	}
	return err
}

// allEnd expects how rank 0's waits have ended, and the Barriers of some ranks, in what the ranks have printed.
func allEnd(t *testing.T, printed string, barrier ...int) {
	t.Helper()
	says := func(pattern string) {
		t.Helper()
		if !regexp.MustCompile(`(?m)^` + pattern + `$`).MatchString(printed) {
			t.Errorf("not printed: %s\nbut:\n%s", pattern, printed)
		}
	}
	for name := range vainWaits {
		says(name + ` ends: peer failed: mpi: .*: rank 1 has returned`)
	}
	for _, rank := range barrier { // the one may be told by the other
		says(fmt.Sprintf(`Barrier of rank %d ends: peer failed: mpi: Barrier: .*rank .*`, rank))
	}
}

// A rank has returned from Main's function, and others wait for it: their calls end. The job ends with the error that a
// rank returns, and goes on where no rank returns one, also without a rank that has died.
func TestReturned(t *testing.T) {
	t.Parallel()
	for _, transports := range []string{"shm", "tcp"} {
		t.Run(transports, func(t *testing.T) {
			t.Parallel()
			env := []string{"GORUN_TRANSPORTS=" + transports}
			t.Run("stop", func(t *testing.T) {
				t.Parallel()
				j := run(t, spec{n: 3, role: "returned", args: []string{"stop"}, env: env}, 1)
				j.lastLine(`rank 0 on \S+: mpi: Barrier: rank 1 has returned`)
				allEnd(t, j.out.String(), 0) // gorun may end rank 2 before it hears
			})
			t.Run("go on", func(t *testing.T) {
				t.Parallel()
				j := run(t, spec{n: 3, role: "returned", args: []string{"go on"}, env: env}, 0)
				allEnd(t, j.out.String(), 0, 2)
			})
			t.Run("recovery", func(t *testing.T) {
				t.Parallel()
				j := run(t, spec{n: 4, role: "returned", args: []string{"go on"}, env: env,
					flags: []string{"--enable-recovery"}}, 128+9)
				allEnd(t, j.out.String(), 0, 2)
				j.says(`rank 3 .*; the job goes on without it`)
			})
		})
	}
}

// So do those of ranks of other hosts.
func TestHostsReturned(t *testing.T) {
	t.Parallel()
	h := netns.Up(t, 3)
	j := runOn(t, h, spread{role: "returned", args: []string{"go on"}}).finish(0)
	allEnd(t, j.Output(0)+j.Output(2), 0, 2)
	if slices.Max(j.codes) != 0 {
		t.Errorf("codes %v", j.codes)
	}
}
