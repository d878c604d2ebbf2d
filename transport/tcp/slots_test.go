package tcp

import (
	"runtime"
	"testing"
)

// A connection costs the same however many there are, Poll reads the slots meanwhile, and a slot that is free is taken
// again.
func TestSlots(t *testing.T) {
	const n, limit = 10000, 256 // bytes
	var all connections
	all.inUse.Store(new([]slot))
	conns := make([]conn, n)
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			default:
			}
			slots := *all.inUse.Load()
			for i := range slots {
				if c := slots[i].Load(); c != nil && c != &conns[i] {
					t.Errorf("slot %d has another connection", i)
					return
				}
			}
		}
	}()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for i := range conns {
		all.enter(&conns[i])
	}
	runtime.ReadMemStats(&after)
	close(stop)
	<-stopped
	if each := (after.TotalAlloc - before.TotalAlloc) / n; each > limit {
		t.Errorf("%d bytes have been allocated for each of %d connections, %d are allowed", each, n, limit)
	}
	for i := 0; i < n; i += 3 {
		all.leave(&conns[i])
	}
	for i := 0; i < n; i += 3 {
		if slots := *all.inUse.Load(); slots[i].Load() != nil {
			t.Fatalf("slot %d is free and has a connection", i)
		}
	}
	for i := 0; i < n; i += 3 {
		all.enter(&conns[i])
	}
	slots := *all.inUse.Load()
	for i := range conns {
		if slots[conns[i].slot].Load() != &conns[i] || len(slots) != n {
			t.Fatalf("connection %d is not in slot %d of %d", i, conns[i].slot, len(slots))
		}
	}
}
