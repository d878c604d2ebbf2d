package e2e

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gorun-mpi/mpi"
)

func init() { role("idle", idle) }

const (
	// away is how long rank 0 calls nothing while the others wait for it.
	away = 2 * time.Second
	// mayUse is the processor time that waiting may cost, in seconds a second.
	mayUse = 0.05
	// mayUseFull is the same where a rank must poll again and again: for room in a ring, whose reader does not
	// announce it. A rank that polls without sleeping uses 1.
	mayUseFull = 0.2
)

// waits are the calls in which ranks 1 and above wait for rank 0, and what rank 0 does about it afterwards.
var waits = map[string]struct{ wait, end func(w *mpi.Comm) error }{
	"recv": {
		func(w *mpi.Comm) error { return recvByte(w, 0) },
		func(w *mpi.Comm) error { return toAll(w, sendByte) },
	},
	"probe": {
		func(w *mpi.Comm) error {
			if _, err := mpi.Probe(w, 0, tagData); err != nil {
				return err
			}
			return recvByte(w, 0)
		},
		func(w *mpi.Comm) error { return toAll(w, sendByte) },
	},
	"barrier": {mpi.Barrier, mpi.Barrier},
	"large send": {
		func(w *mpi.Comm) error { return mpi.Send(w, make([]byte, large), 0, tagData) },
		func(w *mpi.Comm) error { return toAll(w, recvLarge) },
	},
	// Sends until the ring is full: rank 0 is not in the library and has nothing under way, so it is not polled.
	"full ring": {sendMany, func(w *mpi.Comm) error { return toAll(w, recvMany) }},
	// Sends until the credit is spent: a receive of rank 0 is posted, which no message matches, so its watcher polls.
	"no credit": {sendMany, func(w *mpi.Comm) error { return toAll(w, recvMany) }},
}

func recvByte(w *mpi.Comm, from int) error {
	_, err := mpi.Recv(w, []byte{0}, from, tagData)
	return err
}

func sendByte(w *mpi.Comm, to int) error { return mpi.Send(w, []byte{1}, to, tagData) }

func recvLarge(w *mpi.Comm, from int) error {
	_, err := mpi.Recv(w, make([]byte, large), from, tagData)
	return err
}

func sendMany(w *mpi.Comm) error { return many(w, mpi.Send[byte]) }

func recvMany(w *mpi.Comm, from int) error {
	return many(w, func(w *mpi.Comm, b []byte, _, tag int) error {
		_, err := mpi.Recv(w, b, from, tag)
		return err
	})
}

// many is more than a ring holds, and at 1000 bytes more than what a sender may have unmatched.
func many(w *mpi.Comm, f func(w *mpi.Comm, b []byte, to, tag int) error) error {
	b := make([]byte, 1000)
	for range 2000 {
		if err := f(w, b, 0, tagData); err != nil {
			return err
		}
	}
	return nil
}

func toAll(w *mpi.Comm, f func(w *mpi.Comm, rank int) error) error {
	for r := 1; r < w.Size(); r++ {
		if err := f(w, r); err != nil {
			return err
		}
	}
	return nil
}

// idle has every rank but 0 wait in the call that the argument names, and measure what that costs.
func idle(_ context.Context, w *mpi.Comm) error {
	name := os.Args[1]
	if err := mpi.Barrier(w); err != nil {
		return err
	}
	if w.Rank() == 0 {
		return idleEnd(w)
	}
	// Rank 0 and this one connect first.
	if err := sendByte(w, 0); err != nil {
		return err
	}
	if err := recvByte(w, 0); err != nil {
		return err
	}
	used, took := make(chan time.Duration, 1), time.Duration(0)
	go func() { // neither the beginning nor the message itself, which cost more where memory is new
		time.Sleep(away / 4)
		from, before := time.Now(), processorTime()
		time.Sleep(away / 2)
		took = time.Since(from)
		used <- processorTime() - before
	}()
	if err := waits[name].wait(w); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	seconds := (<-used).Seconds()
	fmt.Printf("%s of rank %d: used %.4f in %.2f s\n", name, w.Rank(), seconds/took.Seconds(), took.Seconds())
	return nil
}

func idleEnd(w *mpi.Comm) error {
	if err := toAll(w, recvByte); err != nil {
		return err
	}
	if err := toAll(w, sendByte); err != nil {
		return err
	}
	var posted *mpi.Request
	if os.Args[1] == "no credit" {
		var err error
		if posted, err = mpi.Irecv(w, []byte{0}, 0, tagGo); err != nil {
			return err
		}
	}
	time.Sleep(away)
	if err := waits[os.Args[1]].end(w); err != nil {
		return err
	}
	if posted != nil {
		if err := mpi.Send(w, []byte{1}, 0, tagGo); err != nil {
			return err
		}
		_, err := posted.Wait()
		return err
	}
	return nil
}

// processorTime is what this process has used, all threads, kernel and user.
func processorTime() time.Duration {
	var r unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &r); err != nil {
		fail(err)
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

// A rank that waits uses next to no processor, in whatever call it waits, with a processor for each rank and without.
// Each wake-up costs more on a slow machine: what uses too much is measured again.
func TestIdle(t *testing.T) {
	sizes := []int{2, 8}
	if testing.Short() {
		sizes = sizes[:1]
	}
	for _, n := range sizes {
		t.Run(fmt.Sprintf("%d ranks", n), func(t *testing.T) {
			idles(t, n, slices.Collect(maps.Keys(waits)), "GORUN_UNEXPECTED_MAX=1MiB")
		})
	}
}

// idles expects that ranks use little in these waits.
func idles(t *testing.T, n int, names []string, env ...string) {
	t.Helper()
	var over []string
	for range 3 {
		if names, over = useTooMuch(t, n, names, env); len(over) == 0 {
			return
		}
	}
	t.Error(strings.Join(over, "\n"))
}

// useTooMuch runs a job for each of these waits, at once, and returns those that use too much, and how much.
func useTooMuch(t *testing.T, n int, names, env []string) (which, over []string) {
	t.Helper()
	var jobs []*job
	for _, name := range names {
		jobs = append(jobs, start(t, spec{n: n, role: "idle", args: []string{name}, env: env}))
	}
	for i, j := range jobs {
		j.wait(0)
		m := j.find(`^(.*): used (\S+) in (\S+) s$`)
		if len(m) != n-1 {
			t.Errorf("%d of %d ranks report:\n%s", len(m), n-1, j.out.String())
		}
		limit := mayUse
		if names[i] == "full ring" || names[i] == "no credit" {
			limit = mayUseFull
		}
		fine := len(over)
		for _, m := range m {
			used, _ := strconv.ParseFloat(m[2], 64)
			t.Logf("%s: used %.4f s/s", m[1], used)
			if used > limit {
				over = append(over,
					fmt.Sprintf("%s: used %.4f s/s in %s s, want at most %.2f", m[1], used, m[3], limit))
			}
		}
		if len(over) > fine {
			which = append(which, names[i])
		}
	}
	return which, over
}
