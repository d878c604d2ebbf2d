package launcher

import (
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/gorun-mpi/mpi/internal/procs"
	"github.com/gorun-mpi/mpi/internal/testkit/leak"
	"github.com/gorun-mpi/mpi/internal/testkit/proc"
)

// stuck is a backend whose ranks end as the test says. The start of rank stuckAt does not return before the test ends.
type stuck struct {
	stuckAt int // -1: none
	release chan struct{}
	exits   chan procs.Exit

	mu      sync.Mutex
	running []int            // guarded by mu
	waiting bool             // guarded by mu; the start of rank stuckAt has begun
	signals []syscall.Signal // guarded by mu; to rank 0
	onKill  bool             // SIGKILL ends a rank
	killed  map[int]bool     // guarded by mu
	closed  bool             // guarded by mu
}

func newStuck(t *testing.T, stuckAt int, onKill bool) *stuck {
	b := &stuck{stuckAt: stuckAt, release: make(chan struct{}), exits: make(chan procs.Exit, 10), onKill: onKill,
		killed: map[int]bool{}}
	t.Cleanup(func() { close(b.release) })
	return b
}

func (b *stuck) Start(s *procs.Spec) (int, error) {
	if s.Rank == b.stuckAt {
		b.mu.Lock()
		b.waiting = true
		b.mu.Unlock()
		<-b.release
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.running = append(b.running, s.Rank)
	return 1000 + s.Rank, nil
}

func (b *stuck) Host(int) string          { return "h" }
func (b *stuck) Exits() <-chan procs.Exit { return b.exits }
func (b *stuck) Close()                   { b.mu.Lock(); defer b.mu.Unlock(); b.closed = true }

// ready tells whether the start that takes long has begun, or else all ranks run.
func (b *stuck) ready() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.waiting || len(b.running) == 4
}

// signalled waits for the first signal to the ranks.
func (b *stuck) signalled(t *testing.T) {
	t.Helper()
	proc.Eventually(t, "the signal", func() bool { b.mu.Lock(); defer b.mu.Unlock(); return len(b.signals) > 0 })
}

func (b *stuck) got() syscall.Signal {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.signals[len(b.signals)-1]
}

func (b *stuck) Signal(rank int, s syscall.Signal) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if rank == 0 {
		b.signals = append(b.signals, s)
	}
	if s == syscall.SIGKILL && b.onKill && !b.killed[rank] && len(b.running) > rank {
		b.killed[rank] = true
		b.exits <- procs.Exit{Rank: rank, Pid: 1000 + rank, Host: "h", Signal: s}
	}
}

// runStuck runs a job of 4 ranks, and returns its exit code and what it says. then is called when all ranks run that
// can, and not at all if the job ends before.
func runStuck(t *testing.T, b *stuck, timeout time.Duration, then func()) (code int, said string) {
	t.Helper()
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	stderr, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer stderr.Close()
	j := &Job{
		Apps: []App{{Ranks: 4, Path: "/bin/true", Name: "true"}}, Environ: os.Environ(),
		Options: Options{StdinFor: "none", Timeout: timeout, KillDelay: 100 * time.Millisecond},
		Stdin:   null, Stdout: null, Stderr: stderr, Alone: true,
	}
	plan, err := j.Plan()
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan int, 1)
	go func() { done <- j.runPlan(plan, b) }()
	proc.Eventually(t, "the ranks", func() bool { return b.ready() || len(done) > 0 })
	if b.ready() {
		then()
	}
	select {
	case code = <-done:
	case <-time.After(2 * time.Minute):
		t.Fatal("the supervisor hangs")
	}
	text, err := os.ReadFile(stderr.Name())
	if err != nil {
		t.Fatal(err)
	}
	return code, string(text)
}

// The start of a rank may take for ever. Meanwhile signals, the end of ranks and of the job's time are heard.
func TestEndWhileStarting(t *testing.T) {
	defer func(d time.Duration) { abandonStart = d }(abandonStart)
	abandonStart = 100 * time.Millisecond
	for _, c := range []struct {
		name    string
		timeout time.Duration
		then    func(*stuck)
		code    int
	}{
		{"Ctrl-C", 0, func(*stuck) { syscall.Kill(os.Getpid(), syscall.SIGINT) }, 130},
		{"--timeout", 100 * time.Millisecond, func(*stuck) {}, CodeTimeout},
		{"failed rank", 0, (*stuck).fail, 3},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newStuck(t, 2, true)
			code, said := runStuck(t, b, c.timeout, func() { c.then(b) })
			for c.timeout > 0 && !b.ready() { // the machine was too slow: the job's time was over first
				c.timeout *= 10
				b = newStuck(t, 2, true)
				code, said = runStuck(t, b, c.timeout, func() {})
			}
			if code != c.code {
				t.Errorf("exit code %d, want %d: %s", code, c.code, said)
			}
			if s := b.got(); s != syscall.SIGKILL {
				t.Errorf("the last signal to rank 0 was %v", s)
			}
		})
	}
}

// A rank that does not even end of SIGKILL, because it waits in the kernel, is named and left behind.
func TestRankThatCannotEnd(t *testing.T) {
	defer func(d time.Duration) { abandonAfter = d }(abandonAfter)
	abandonAfter = 100 * time.Millisecond
	b := newStuck(t, -1, false)
	code, said := runStuck(t, b, 0, func() {
		for _, rank := range []int{0, 2, 3} {
			b.exits <- procs.Exit{Rank: rank, Pid: 1000 + rank, Host: "h", Code: 1}
		}
	})
	if code != 1 || !strings.Contains(said, "left behind: rank 1 (pid 1001)") {
		t.Errorf("exit code %d: %s", code, said)
	}
}

// What comes while a rank starts is for it as well, once it runs: it is not left over.
func TestSignalDuringAStart(t *testing.T) {
	defer func(d time.Duration) { abandonStart = d }(abandonStart)
	abandonStart = time.Hour
	procs.NewLocal(1, false, nil).Close() // os/signal keeps a goroutine from its first use on
	before := leak.Take()
	b := newStuck(t, 3, true)
	code, said := runStuck(t, b, 0, func() {
		syscall.Kill(os.Getpid(), syscall.SIGTERM)
		b.signalled(t)
		b.release <- struct{}{}
	})
	if code != 143 {
		t.Errorf("exit code %d: %s", code, said)
	}
	if b.mu.Lock(); len(b.killed) != 4 {
		t.Errorf("only ranks %v were killed", b.killed)
	}
	b.mu.Unlock()
	if err := before.Check(time.Minute); err != nil {
		t.Error(err)
	}
}

// fail has rank 1 exit with code 3.
func (b *stuck) fail() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.killed[1] = true
	b.exits <- procs.Exit{Rank: 1, Code: 3}
}
