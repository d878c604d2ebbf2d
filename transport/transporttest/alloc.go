package transporttest

import (
	"runtime"
	"testing"

	"github.com/gorun-mpi/mpi/internal/wire"
	"github.com/gorun-mpi/mpi/transport"
)

// noAllocations: sending, polling, arming and reading allocate nothing once they have been done a few times.
func noAllocations(f *fixture) {
	if raceEnabled {
		f.Skip("the race detector allocates")
	}
	a, b := f.linked()
	c := a.link.Caps()
	h := wire.Header{Kind: wire.Data, Flags: wire.Urgent}
	for _, size := range []int{0, 8, 112, 1024, c.EagerMax, c.FragMax} {
		body := pattern(size, 1)
		for _, batch := range []int{1, 4} {
			f.allocates("send and poll", size, func() {
				got := 0
				for range batch {
					for !a.link.TrySend(&h, body) {
						a.dev.Poll(a.pkts) // "after the next Poll" is that of the sender's device
						got += b.dev.Poll(b.pkts)
					}
				}
				for got < batch {
					n := b.dev.Poll(b.pkts)
					if got += n; n == 0 {
						runtime.Gosched()
					}
				}
			})
		}
	}
	f.allocates("empty poll", 0, func() { b.dev.Poll(b.pkts) })
	f.allocates("arm, interrupt, park, disarm", 0, func() {
		for _, hold := range []bool{true, false} {
			b.dev.Arm(transport.Any, hold)
			b.dev.Interrupt()
			b.dev.Park(hold)
			b.dev.Disarm()
		}
	})
	if g, ok := b.link.(transport.Getter); ok && c.Get {
		src, dst := pattern(100_000, 1), make([]byte, 100_000)
		addr, key := f.register(a, src)
		f.allocates("get", len(dst), func() {
			if state, err := g.TryGet(dst, addr, key, 1); err != nil || state == transport.GetStarted {
				for b.dev.Poll(b.pkts) == 0 {
					runtime.Gosched()
				}
			}
		})
	}
}

// allocates counts process-wide, so the least of a few counts is taken: something else may allocate once.
func (f *fixture) allocates(what string, size int, run func()) {
	f.Helper()
	for range 50 {
		run()
	}
	least := testing.AllocsPerRun(f.rounds(200), run)
	for range 3 {
		if least > 0 {
			least = min(least, testing.AllocsPerRun(f.rounds(200), run))
		}
	}
	if least > 0 {
		f.Errorf("%s, %d bytes: %v allocations", what, size, least)
	}
}
