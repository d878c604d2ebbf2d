package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gorun-mpi/mpi"
	"github.com/gorun-mpi/mpi/internal/testkit/proc"
)

func init() {
	role("peer dies", peerDies)
	withoutReadv("peer dies", peerDies)
}

const (
	tagData = 1
	tagGo   = 2
)

// die kills this process as the kernel's OOM killer would, and prints when.
func die() {
	fmt.Printf("dying at %d\n", time.Now().UnixMicro())
	syscall.Kill(os.Getpid(), syscall.SIGKILL)
	proc.AwaitEnd()
}

// ways are the calls of rank 0 in which rank 1 dies. survive is what rank 0 does, until an error; fall is what
// rank 1 does before it dies.
var ways = map[string]struct {
	survive, fall func(w *mpi.Comm) error
}{
	// The announcement is at rank 0, nothing has been fetched.
	"sender after RTS": {
		survive: func(w *mpi.Comm) error {
			if _, err := mpi.Probe(w, 1, tagData); err != nil {
				return err
			}
			if err := mpi.Send(w, []byte{1}, 1, tagGo); err != nil {
				return err
			}
			if _, err := mpi.Recv(w, []byte{0}, 1, tagGo); err == nil {
				return errors.New("rank 1 lives")
			}
			_, err := mpi.Recv(w, make([]byte, large), 1, tagData)
			return err
		},
		fall: func(w *mpi.Comm) error {
			if _, err := mpi.Isend(w, make([]byte, large), 0, tagData); err != nil {
				return err
			}
			_, err := mpi.Recv(w, []byte{0}, 0, tagGo)
			return err
		},
	},
	// Somewhere in one of many transfers.
	"sender while it sends": {
		survive: func(w *mpi.Comm) (err error) {
			for b := make([]byte, large); err == nil; {
				_, err = mpi.Recv(w, b, 1, tagData)
			}
			return err
		},
		fall: func(w *mpi.Comm) (err error) {
			time.AfterFunc(80*time.Millisecond, die)
			for b := make([]byte, large); err == nil; {
				err = mpi.Send(w, b, 0, tagData)
			}
			return err
		},
	},
	"receiver before it receives": {
		survive: func(w *mpi.Comm) error { return mpi.Send(w, make([]byte, large), 1, tagData) },
		fall: func(w *mpi.Comm) error {
			_, err := mpi.Probe(w, 0, tagData)
			return err
		},
	},
	"receiver while it receives": {
		survive: func(w *mpi.Comm) (err error) {
			for b := make([]byte, large); err == nil; {
				err = mpi.Send(w, b, 1, tagData)
			}
			return err
		},
		fall: func(w *mpi.Comm) (err error) {
			time.AfterFunc(80*time.Millisecond, die)
			for b := make([]byte, large); err == nil; {
				_, err = mpi.Recv(w, b, 0, tagData)
			}
			return err
		},
	},
	"eager wait": {
		survive: func(w *mpi.Comm) error {
			_, err := mpi.Recv(w, make([]byte, 8), 1, tagData)
			return err
		},
		fall: pause,
	},
	"synchronous send": {
		survive: func(w *mpi.Comm) error { return mpi.Ssend(w, make([]byte, 8), 1, tagData) },
		fall:    pause,
	},
	"many small sends": {
		survive: func(w *mpi.Comm) (err error) {
			for b := make([]byte, 1000); err == nil; {
				err = mpi.Send(w, b, 1, tagData)
			}
			return err
		},
		fall: pause,
	},
	"probe": {
		survive: func(w *mpi.Comm) error {
			_, err := mpi.Probe(w, 1, tagData)
			return err
		},
		fall: pause,
	},
	"barrier": {survive: mpi.Barrier, fall: pause},
	"wait": {
		survive: func(w *mpi.Comm) error {
			r, err := mpi.Irecv(w, make([]byte, 8), 1, tagData)
			if err != nil {
				return err
			}
			_, err = r.Wait()
			return err
		},
		fall: pause,
	},
	"a goroutine of many": {
		survive: func(w *mpi.Comm) error {
			errs := make(chan error)
			for i := range 50 {
				go func() {
					_, err := mpi.Recv(w, make([]byte, 8), 1, tagData+i)
					errs <- err
				}()
			}
			for range 49 {
				if err := <-errs; !errors.Is(err, mpi.ErrPeerFailed) {
					return err
				}
			}
			return <-errs
		},
		fall: pause,
	},
}

// pause gives rank 0 time to begin to wait. The test holds too if it has not.
func pause(*mpi.Comm) error {
	time.Sleep(30 * time.Millisecond)
	return nil
}

func peerDies(_ context.Context, w *mpi.Comm) error {
	way := ways[os.Args[1]]
	if err := mpi.Barrier(w); err != nil {
		return err
	}
	if w.Rank() == 1 {
		if err := way.fall(w); err != nil {
			return fmt.Errorf("before dying: %w", err)
		}
		die()
	}
	err := way.survive(w)
	fmt.Printf("rank 0 survives with peer failed %v: %v\n", errors.Is(err, mpi.ErrPeerFailed), err)
	return err
}

// A rank's call that involves a dead peer ends with ErrPeerFailed, and the job as the dead rank did. gorun kills the
// others half a second after a death. On a slow machine the survivor may be killed before it prints anything, or the
// death be known too late to be the cause: then the job is run again.
func TestPeerDies(t *testing.T) {
	t.Parallel()
	for name := range ways {
		for _, role := range []string{"peer dies", "peer dies without readv"} {
			if role != "peer dies" && !strings.Contains(name, "sender") && !strings.Contains(name, "receiver") {
				continue // the scheme does not matter
			}
			t.Run(name+"/"+role, func(t *testing.T) {
				t.Parallel()
				dies(t, role, name)
			})
		}
	}
}

// dies runs a job in which rank 1 dies in one of ways.
func dies(t *testing.T, role, way string, env ...string) *job {
	t.Helper()
	j := startAgain(t, spec{n: 2, role: role, args: []string{way}, env: env}, 10, func(j *job) bool {
		return j.count(`^rank 0 survives`) > 0 && j.cmd.ProcessState.ExitCode() == 128+9 || j.count(`^SIG`) > 0
	})
	j.wait(128 + 9)
	j.says(`^dying at \d+$`, `^rank 0 survives with peer failed true: mpi: \S+ .*rank 1`,
		`rank 1 \(pid \d+ on host \S+\) was killed by signal 9`)
	if n := j.count(`peer is gone`); n > 0 { // its end is said in one clause
		t.Errorf("%d lines say that the peer is gone", n)
		j.dump()
	}
	return j
}
