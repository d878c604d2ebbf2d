package mpi

import (
	"errors"
	"sync"
	"testing"

	"github.com/gorun-mpi/mpi/transport"
)

// A rank that ends is ErrPeerFailed at a root that has no link to it, though those that have links to it do not use the
// communicator any more: they have made their part of the call and freed it.
func TestSharedEndOfAStranger(t *testing.T) {
	const n = 8
	for victim := 1; victim < n; victim++ {
		var freed sync.WaitGroup
		freed.Add(n - 2)
		seen := make(chan struct{})
		var dies transport.Device
		over(t, withDevices(func(rank int, d transport.Device) transport.Device {
			if rank == victim {
				dies = d
			}
			return d
		}))(n, func(w *Comm) {
			c := ok(w.Dup())
			buf := []int{w.Rank()}
			for range boardSetup { // over trees, so that there are few links
				must(Bcast(c, buf, 0))
			}
			switch w.Rank() {
			case victim:
				freed.Wait()
				dies.Close() // as a kill does: the engine says nothing
			case 0:
				err := Reduce(c, []int{1}, buf, Sum, 0)
				close(seen)
				check(errors.Is(err, ErrPeerFailed), "victim %d: %v", victim, err)
			default:
				must(Reduce(c, []int{1}, nil, Sum, 0))
				must(c.Free())
				freed.Done()
				<-seen
			}
		}, onBoard)
	}
}
