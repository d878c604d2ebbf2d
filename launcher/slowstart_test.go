package launcher

import (
	"strings"
	"testing"
	"time"

	"github.com/gorun-mpi/mpi/internal/testkit/proc"
)

// A job's time is over while its first rank is being started. The rank has its time to end, once it runs.
func TestSlowStartHasItsTime(t *testing.T) {
	b := newStuck(t, 0, true)
	code, said := runStuck(t, b, time.Millisecond, func() {
		proc.Eventually(t, "the signal", func() bool { b.mu.Lock(); defer b.mu.Unlock(); return len(b.signals) > 0 })
		time.Sleep(abandonStart / 2)
		b.release <- struct{}{}
		time.Sleep(abandonStart)
		b.exits <- Exit{Rank: 0, Pid: 1000, Host: "h"}
	})
	if code != CodeTimeout || strings.Contains(said, "left behind") {
		t.Errorf("exit code %d: %s", code, said)
	}
}
