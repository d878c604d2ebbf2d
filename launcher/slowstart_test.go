package launcher

import (
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gorun-mpi/mpi/internal/procs"
)

// A job is to end while its first rank is being started. The rank has its time to end, once it runs.
func TestSlowStartHasItsTime(t *testing.T) {
	defer func(d time.Duration) { abandonStart = d }(abandonStart)
	for abandonStart = 100 * time.Millisecond; ; abandonStart *= 10 {
		b := newStuck(t, 0, false)
		var took time.Duration
		early := false
		code, said := runStuck(t, b, 0, func() {
			begin := time.Now()
			syscall.Kill(syscall.Getpid(), syscall.SIGTERM)
			b.signalled(t)
			b.release <- struct{}{}
			took = time.Since(begin)
			time.Sleep(2 * abandonStart)
			b.mu.Lock()
			early = b.closed
			b.mu.Unlock()
			b.exits <- procs.Exit{Rank: 0, Pid: 1000, Host: "h"}
		})
		if code == 143 && !early && !strings.Contains(said, "left behind") {
			return
		}
		if took < abandonStart/2 { // or the machine was too slow, and the start was given up first
			t.Fatalf("exit code %d; gorun left before the rank: %v: %s", code, early, said)
		}
	}
}
