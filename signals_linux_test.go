package mpi

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gorun-mpi/mpi/internal/testkit/proc"
)

// terminateSelf sends SIGTERM to the calling thread, which has got it when terminateSelf returns.
func terminateSelf() error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	return syscall.Tgkill(os.Getpid(), syscall.Gettid(), syscall.SIGTERM)
}

func init() {
	for name, body := range map[string]func(ctx context.Context, w *Comm) error{
		"in a call": func(_ context.Context, w *Comm) error {
			return errors.Join(terminateSelf(), second(Recv(w, []byte{0}, 0, 3)))
		},
		"deaf": func(context.Context, *Comm) error {
			for {
				if err := terminateSelf(); err != nil {
					return err
				}
				time.Sleep(time.Millisecond)
			}
		},
		"told twice": func(ctx context.Context, _ *Comm) error {
			err := terminateSelf()
			<-ctx.Done()
			return errors.Join(err, terminateSelf())
		},
		"with a context": func(ctx context.Context, w *Comm) error {
			must(terminateSelf())
			is(second(Recv(w.WithContext(ctx), []byte{0}, 0, 3)), context.Canceled)
			same(context.Cause(ctx).Error(), "terminated signal received")
			return nil
		},
		"with a goroutine": func(_ context.Context, w *Comm) error {
			sent := make(chan error)
			go func() {
				time.Sleep(5 * lookEvery)
				sent <- Send(w, []byte{0}, 0, 3)
			}()
			return errors.Join(terminateSelf(), second(Recv(w, []byte{0}, 0, 3)), <-sent)
		},
		"with ranks of its own": func(context.Context, *Comm) error {
			is(RunLocal(2, func(w *Comm) error { return second(Recv(w, []byte{0}, 1-w.Rank(), 3)) }), ErrAborted)
			return nil
		},
	} {
		roles["alone "+name] = func() error {
			if name == "told twice" {
				sameSignal = time.Hour
			}
			Main(body)
			return nil
		}
	}
}

// Without a launcher SIGTERM ends a program of Main that waits for itself, and a second one ends any program. A program
// that can go on ends as it likes after the first one.
func TestMainAlone(t *testing.T) {
	const stuck = "mpi: terminated: the program ends; it waits for what no goroutine of it can do:\n" +
		"  rank 0: Recv from 0, tag 3, 1 B, world, "
	for name, dies := range map[string]bool{"in a call": true, "deaf": true, "told twice": false,
		"with a context": false, "with a goroutine": false, "with ranks of its own": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out, err := proc.Run(t, "alone "+name)
			var exit *exec.ExitError
			killed := errors.As(err, &exit) && exit.Sys().(syscall.WaitStatus).Signal() == syscall.SIGTERM
			if killed != dies || err != nil && !dies || strings.Contains(out, stuck) != (name == "in a call") {
				t.Errorf("%v, and it says %q", err, out)
			}
		})
	}
}
