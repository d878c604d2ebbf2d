package mpi

import (
	"context"
	"testing"
)

// §7.2.4: MPI_COMM_SELF has the rank alone, in each rank and whatever the others do.
func TestSelf(t *testing.T) {
	everywhere(t, func(t *testing.T, run runner) {
		run(3, func(w *Comm) {
			self := Self(w)
			same([2]int{self.Rank(), self.Size()}, [2]int{0, 1})
			same(self.String(), "self (rank 0 of 1)")
			same(ok(self.Group().Translate([]int{0}, w.Group()))[0], w.Rank())
			r := ok(Isend(self, []int{w.Rank()}, 0, 7))
			buf, elsewhere := []int{-1}, []int{-1}
			_, found, err := Iprobe(w, AnySource, AnyTag) // a message of self is none of the world
			must(err)
			same(found, false)
			same(ok(Recv(self, buf, AnySource, AnyTag)), Status{Source: 0, Tag: 7, Bytes: 8})
			same(buf[0], w.Rank())
			ok(r.Wait())
			must(Allreduce(self, buf, elsewhere, Sum))
			same(elsewhere[0], w.Rank())
			is(Send(self, buf, 1, 0), ErrRank)

			dup := ok(w.Dup())
			same(ok(Self(dup).Compare(self)), Ident) // of every communicator of the rank
			own := ok(self.Dup())
			same(ok(own.Compare(self)), Congruent)
			must(Barrier(own))
			must(own.Free())
			is(self.Free(), ErrComm)
			must(dup.Free())

			ctx, cancel := context.WithCancel(context.Background())
			cancel()
			is(second(Recv(Self(w.WithContext(ctx)), buf, 0, 0)), context.Canceled)
		})
	})
	if Self(nil) != nil {
		t.Error("Self(nil) is a communicator")
	}
}

// Communicators that are made later have other numbers than self, at ranks that have it and at those that have not.
func TestSelfAmongOthers(t *testing.T) {
	over(t)(2, func(w *Comm) {
		if w.Rank() == 0 {
			must(Barrier(Self(w)))
		}
		for range 5 {
			c := ok(w.Dup())
			must(Barrier(c))
			ring(c, 1)
			must(Barrier(Self(c)))
		}
	})
}
