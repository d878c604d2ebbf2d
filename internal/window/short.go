package window

import (
	"context"
	"sync/atomic"

	"github.com/gorun-mpi/mpi/rma"
)

// The mutex of the epochs takes longer than a lock of mapped memory. So where no epoch is open, a Lock that is had at
// once is noted in one word, and the Unlock that follows takes it back. Every other call has the epochs take over first
// (takeOver): they are neither read nor changed before.

// shortEpoch is an epoch that the epochs do not have: shortNone, or its lock. 0: they have all there is. The window's
// mu is held when 0 becomes another value, and the other way round.
type shortEpoch struct{ atomic.Uint64 }

const (
	shortNone = 1 // no epoch is open
	shortRank = 2 // the lowest bit of a rank, plus 1; its mode is below
)

func shortOf(rank int, mode rma.Mode) uint64 { return uint64(rank+1)<<shortRank | uint64(mode) }

// isOf reports whether the epoch is one of a rank's lock.
func (s *shortEpoch) isOf(rank int) bool { return s.Load()>>shortRank == uint64(rank+1) }

// lockShort is Lock, if no epoch is open and the rank's lock is had at once. It reports whether it has opened the
// epoch.
func (w *Window) lockShort(ctx context.Context, rank int, mode rma.Mode) bool {
	if w.short.Load() != shortNone || uint(rank) >= uint(len(w.parts)) || ctx != nil && ctx.Err() != nil ||
		mode != rma.Shared && mode != rma.Exclusive || mode == rma.Exclusive && w.heldBack().Load() != 0 {
		return false
	}
	p := w.parts[rank]
	if !rma.TryEnter(p, mode) {
		return false
	}
	rma.Entered(p, mode)
	if !w.short.CompareAndSwap(shortNone, shortOf(rank, mode)) { // another goroutine has opened an epoch
		rma.Leave(p, mode)
		return false
	}
	return true
}

// unlockShort is Unlock of lockShort. It reports whether it has ended the epoch.
func (w *Window) unlockShort(rank int) bool {
	s := w.short.Load()
	if uint(rank) >= uint(len(w.parts)) || s>>shortRank != uint64(rank+1) || !w.short.CompareAndSwap(s, shortNone) {
		return false
	}
	rma.Leave(w.parts[rank], rma.Mode(s&(1<<shortRank-1)))
	return true
}

// takeOver has the epochs take over. mu is held.
func (w *Window) takeOver() {
	if w.short.Load() == 0 {
		return
	}
	if s := w.short.Swap(0); s != shortNone {
		rank, mode := int(s>>shortRank)-1, rma.Mode(s&(1<<shortRank-1))
		w.note(rank)
		w.epochs.Lock(int32(rank), mode)
		w.epochs.LockReturns(int32(rank), true)
	}
}
