package eventset

import (
	"context"
	"os"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gorun-mpi/mpi/internal/testkit/leak"
	"github.com/gorun-mpi/mpi/internal/testkit/proc"
	"github.com/gorun-mpi/mpi/transport"
)

// patience is the limit of a wait, after which a test fails; pause is how long a test waits for something that must not
// happen.
const (
	patience = time.Minute
	pause    = 20 * time.Millisecond
)

// TestMain makes sure that no test leaves a goroutine or a descriptor.
func TestMain(m *testing.M) { os.Exit(leak.VerifyMain(m.Run)) }

// device is a transport.Device whose arrivals a test makes.
type device struct {
	t      testing.TB
	wakes  []transport.Wake
	lines  []*line        // what Wake.FD and Wake.ThreadFD show
	shared bool           // lines[0] is both
	word   *atomic.Uint32 // Wake.Word
	wake   func(bool)     // by Notify

	came  atomic.Int64 // arrivals that have not been polled
	level atomic.Int64 // of Arm, and 1; 0: not armed
}

const asleep = 7

// kinds of devices, by how they show an arrival.
var kinds = map[string]func(testing.TB) *device{
	"one descriptor": func(t testing.TB) *device {
		d := &device{t: t, lines: []*line{newLine(t)}, shared: true}
		d.wakes = []transport.Wake{{FD: d.lines[0].r, ThreadFD: d.lines[0].r}}
		return d
	},
	"one descriptor, while it is armed": func(t testing.TB) *device {
		d := &device{t: t, lines: []*line{newLine(t)}, shared: true}
		d.wakes = []transport.Wake{{FD: d.lines[0].r, ThreadFD: d.lines[0].r, OnlyArmed: true}}
		return d
	},
	"a descriptor each": func(t testing.TB) *device {
		d := &device{t: t, lines: []*line{newLine(t), newLine(t)}}
		d.wakes = []transport.Wake{{FD: d.lines[0].r, ThreadFD: d.lines[1].r, Clear: d.clear}}
		return d
	},
	"calls": func(t testing.TB) *device {
		d := &device{t: t}
		d.wakes = []transport.Wake{{FD: -1, ThreadFD: -1, Notify: func(wake func(bool)) { d.wake = wake }}}
		return d
	},
}

func (d *device) Name() string                { return "test" }
func (d *device) Address() []byte             { return nil }
func (d *device) Facts() *transport.Facts     { return &transport.Facts{Wake: d.wakes} }
func (d *device) Poll([]transport.Packet) int { panic("a set does not poll") }
func (d *device) Close() error                { return nil }
func (d *device) Disarm()                     { d.level.Store(0) }
func (d *device) clear(thread bool)           { d.lines[indexOf(thread)].drain() }

func (d *device) Connect(context.Context, int, []byte) (transport.Link, error) {
	panic("a set does not connect")
}

func (d *device) Arm(level transport.Level) bool {
	if d.word != nil && level == transport.Futex {
		d.word.Store(asleep)
	}
	d.level.Store(int64(level) + 1)
	if d.came.Load() > 0 {
		d.level.Store(0)
		return false
	}
	return true
}

// arrive is an arrival: the device shows it as it was last armed.
func (d *device) arrive() {
	d.came.Add(1)
	if d.shared { // as a socket does, armed or not
		d.lines[0].send()
		return
	}
	level := transport.Level(d.level.Swap(0) - 1)
	thread := level == transport.Thread
	switch {
	case level == ^transport.Level(0):
	case level == transport.Futex:
		if d.word.CompareAndSwap(asleep, 0) {
			wakeSleepers(d.word)
		}
	case d.wake != nil:
		d.wake(thread)
	default:
		d.lines[indexOf(thread)].send()
	}
}

// poll takes what has arrived.
func (d *device) poll() int64 {
	if d.shared {
		d.lines[0].drain()
	}
	return d.came.Swap(0)
}

// set is where a rank of d sleeps.
func (d *device) set() *Set {
	d.t.Helper()
	s, err := New(d)
	if err != nil {
		d.t.Fatal(err)
	}
	d.t.Cleanup(s.Close)
	return s
}

// line is a pipe.
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

func (l *line) drain() {
	var b [64]byte
	unix.Read(l.r, b[:])
}

// each runs a test for every kind of device and both sleepers.
func each(t *testing.T, test func(t *testing.T, d *device, s *Set, thread bool)) {
	for name, kind := range kinds {
		for _, thread := range []bool{true, false} {
			sleeper := ", a goroutine"
			if thread {
				sleeper = ", a thread"
			}
			t.Run(name+sleeper, func(t *testing.T) {
				d := kind(t)
				test(t, d, d.set(), thread)
			})
		}
	}
}

// park is a Park in a goroutine of its own.
func park(s *Set, thread bool) chan struct{} {
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.Park(thread)
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

func watch(t testing.TB, s *Set) *proc.Watchdog { return proc.StartWatchdog(t, patience, s.Interrupt) }

// yield lets the other side run for a time that differs from round to round.
func yield(i int) {
	for range i * 7919 % 13 {
		runtime.Gosched()
	}
}

// parking is how many Parks are under way.
func (s *Set) parking() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.parks
}
