//go:build linux || darwin || freebsd

package doze

import (
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gorun-mpi/mpi/internal/testkit/leak"
	"github.com/gorun-mpi/mpi/internal/testkit/proc"
)

// patience is after how long something will not happen any more, pause how long something is given to go wrong.
const (
	patience = 30 * time.Second
	pause    = 20 * time.Millisecond
)

// TestMain makes sure that no test leaves a goroutine or a descriptor.
func TestMain(m *testing.M) { os.Exit(leak.VerifyMain(m.Run)) }

func place(t testing.TB) *Place {
	t.Helper()
	p, err := New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return p
}

// line is what a packet arrives on: a pipe.
type line struct {
	t    testing.TB
	r, w int
}

func newLine(t testing.TB) *line {
	t.Helper()
	var ends [2]int
	if err := unix.Pipe(ends[:]); err != nil {
		t.Fatal(err)
	}
	l := &line{t, ends[0], ends[1]}
	unix.SetNonblock(l.r, true)
	unix.SetNonblock(l.w, true)
	t.Cleanup(func() { unix.Close(l.r); unix.Close(l.w) })
	return l
}

func (l *line) send() {
	if n, err := unix.Write(l.w, []byte{1}); n != 1 {
		l.t.Error(err)
	}
}

// poll takes what has arrived.
func (l *line) poll() int {
	var b [64]byte
	n, _ := unix.Read(l.r, b[:])
	return max(n, 0)
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// park is a Park in a goroutine of its own.
func park(p *Place, hold bool) chan struct{} {
	done := make(chan struct{})
	go func() {
		defer close(done)
		p.Park(hold)
	}()
	return done
}

func ends(t testing.TB, done <-chan struct{}, why string) {
	t.Helper()
	select {
	case <-done:
	case <-time.After(patience):
		t.Fatalf("Park has not ended within %v: %s", patience, why)
	}
}

func lasts(t testing.TB, done <-chan struct{}, why string) {
	t.Helper()
	select {
	case <-done:
		t.Fatalf("Park has ended: %s", why)
	case <-time.After(pause):
	}
}

func watch(t testing.TB, p *Place) *proc.Watchdog {
	return proc.StartWatchdog(t, patience, p.Interrupt)
}
