package shm

import (
	"context"
	"errors"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/gorun-mpi/mpi/internal/testkit/proc"
	"github.com/gorun-mpi/mpi/transport"
)

func init() {
	roles["listen"] = func() error {
		d, err := newDevice(Options{Rank: 1, Size: 2})
		if err != nil {
			return err
		}
		proc.Send(d.Address())
		return proc.AwaitEnd() // until the test has ended
	}
}

// A process that is stopped at first contact, in a debugger for example, is waited for as long as the caller says.
func TestStopped(t *testing.T) {
	const limit, standstill = 100 * time.Millisecond, time.Second
	d := open(t, Options{Rank: 0, Size: 2, handshakeLimit: limit, bySocket: true})
	p := proc.Start(t, "listen")
	address := p.Recv()
	p.Signal(syscall.SIGSTOP)
	proc.Eventually(t, "its stop", func() bool {
		return len(proc.List(func(i proc.Info) bool { return i.Parent == os.Getpid() && i.State == "T" })) == 1
	})
	short, cancel := context.WithTimeout(context.Background(), 2*limit)
	defer cancel()
	if _, err := d.Connect(short, 1, address); !errors.Is(err, transport.ErrTimeout) {
		t.Errorf("a caller that waits for %v: %v", 2*limit, err)
	}
	timer := time.AfterFunc(standstill, func() { p.Signal(syscall.SIGCONT) })
	t.Cleanup(func() { timer.Stop() })
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if _, err := d.Connect(ctx, 1, address); err != nil {
		t.Errorf("a caller that waits for longer than the process is stopped: %v", err)
	}
}
