package transporttest

import (
	"runtime"
	"testing"

	"github.com/gorun-mpi/mpi/internal/wire"
	"github.com/gorun-mpi/mpi/transport"
)

// noAllocations checks that sending, polling, arming and reading allocate nothing once they have been done a few times.
func noAllocations(f *fixture) {
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
		for _, thread := range []bool{true, false} {
			b.set.Arm(transport.Any, thread)
			b.set.Interrupt()
			b.set.Park(thread)
			b.set.Disarm()
		}
	})
	if f.has&Get != 0 {
		far, near := pattern(100_000, 1), transport.HostMem(make([]byte, 100_000))
		addr, key := f.register(a, far, transport.Readable)
		f.allocates("get", near.Len, func() {
			if state, err := b.link.Caps().RMA.Get(near, addr, key, 1); err != nil || state == transport.Started {
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
