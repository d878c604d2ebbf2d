package window

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/gorun-mpi/mpi/internal/mpierr"
	"github.com/gorun-mpi/mpi/internal/ranks"
	"github.com/gorun-mpi/mpi/pml"
	"github.com/gorun-mpi/mpi/rma"
)

// Each rank of a window has a lock, whose words (rma.Word) are lines of the board: any member takes a ticket there, and
// sleeps until it has its turn. No message is sent, and the rank whose lock it is has no part in that.
const (
	lineAlone   = rma.Words     // behind those words: see guard.go
	lineUsers   = rma.Words + 1 // likewise
	lineFences  = rma.Words + 2 // see meetAll
	lineHeld    = rma.Words + 3 // of rank 0: see heldBack
	linesOfRank = int(rma.Words) + 4
)

// linesEach is how many lines a rank has, of so many: these, and the lines for the signals that it gets (signals.go).
func linesEach(members int) int { return linesOfRank + linesOfSignals(members) }

func (p *part) word(i rma.Word) *atomic.Uint64 { return p.words[i] }

// findWords finds the words of each rank that is mapped, if there is a board.
func (w *Window) findWords() {
	for _, p := range w.near {
		for i := range p.words {
			p.words[i] = &w.board.Lines[p.lines+i].Word
		}
	}
}

// Load implements rma.Memory.
func (p *part) Load(i rma.Word) uint64 { return p.word(i).Load() }

// Add implements rma.Memory.
func (p *part) Add(i rma.Word) uint64 {
	n := p.word(i).Add(1)
	if i != rma.Next { // for which no rank sleeps
		p.w.board.Wake(p.lines + int(i))
	}
	return n
}

// Take implements rma.Memory.
func (p *part) Take(from uint64) bool { return p.word(rma.Next).CompareAndSwap(from, from+1) }

// enter takes a ticket for a lock of mapped memory, and has the lock if its turn has come already.
func (w *Window) enter(rank int, mode rma.Mode) (ticket uint64, had bool) {
	m := w.parts[rank]
	if ticket = rma.Enter(m); m.Load(rma.Turn(mode)) < ticket {
		return ticket, false
	}
	rma.Entered(m, mode)
	return ticket, true
}

// turn returns when a ticket has its turn. The error is that a member has failed: then the lock may never come. Or ctx
// has ended: then the lock is let go when it comes.
func (w *Window) turn(ctx context.Context, op string, rank int, mode rma.Mode, ticket uint64) error {
	m := w.parts[rank]
	line := m.lines + int(rma.Turn(mode))
	var err error
	var failed *pml.PeerError
	if !w.board.Spin(line, ticket) {
		err = w.await(ctx, line, ticket, noRanks)
	}
	if err == nil {
		rma.Entered(m, mode)
	} else if errors.As(err, &failed) {
		return w.lockLost(op, rank, w.group.RankOf(int32(failed.Rank)), failed.Err)
	} else if ctx != nil && ctx.Err() != nil {
		w.background(op, func() error {
			if err := w.await(nil, line, ticket, noRanks); err != nil {
				return err
			}
			rma.Entered(m, mode)
			rma.Leave(m, mode)
			return nil
		})
	}
	return err
}

// lockLost is the error of a call that waits for a lock which a rank may have had that has failed, or returned, which
// is why then.
func (w *Window) lockLost(op string, rank, who int, why error) error {
	if why == pml.ErrReturned {
		return w.fail(op, mpierr.ErrPeerFailed, rank, "rank %d %w, and may have had the lock; every rank calls "+
			"Unlock, or UnlockAll, and Free before it returns", who, why)
	}
	return w.fail(op, mpierr.ErrPeerFailed, rank, "rank %d has failed, and may have had the lock; no rank waits for "+
		"it any more", who)
}

// note notes that this rank has the lock of mapped memory.
func (w *Window) note(rank int) {
	w.parts[rank].access.Store(accessLocked)
}

// noRanks is for a wait for a word that any member may raise: one that has returned has said whether it will.
var noRanks = []int32{}

// sleep returns when a word is at least so much, for which the caller has waited by Spin, or may be. lacks returns the
// ranks of the window that have still to do what the caller waits for. The wait ends if one of them is gone: it is the
// first one of left, and the error names it.
func (w *Window) sleep(ctx context.Context, op string, line int, least uint64, lacks func() []int32) (left []int32,
	err error) {
	if left = lacks(); len(left) == 0 {
		return nil, nil
	}
	from := make([]int32, len(left))
	for i, r := range left {
		from[i] = int32(w.group.ToWorld(int(r)))
	}
	if err = w.await(ctx, line, least, from); err == nil {
		return nil, nil
	}
	left = lacks()
	var failed *pml.PeerError
	if errors.As(err, &failed) && !slices.ContainsFunc(left, func(r int32) bool { return w.isGone(r, failed) }) {
		return nil, nil // it has done that, and was gone then
	}
	return w.goneFirst(op, left, err)
}

// await returns when a word is at least so much. from are ranks of the world that have still to raise it, or another
// word that the caller waits for: the wait ends if one of them is gone, and not if another one is. For noRanks the
// failure of any member ends it.
func (w *Window) await(ctx context.Context, line int, least uint64, from []int32) error {
	word := &w.board.Lines[line].Word
	if word.Load() >= least {
		return nil
	}
	w.watch()
	// One goroutine at a time sleeps at the board, and none once a member has failed. Others look now and then.
	const most = time.Millisecond
	for wait := time.Microsecond; ; wait = min(2*wait, most) {
		if w.waits.TryLock() {
			err := w.board.AwaitFrom(ctx, line, least, from)
			w.waits.Unlock()
			var failed *pml.PeerError
			if len(from) == 0 || !errors.As(err, &failed) || slices.Contains(from, int32(failed.Rank)) {
				return err
			}
		}
		if time.Sleep(wait); word.Load() >= least {
			return nil
		}
		if ctx != nil && ctx.Err() != nil {
			return ctx.Err()
		}
		for _, rank := range from {
			w.group.Engine.Iprobe(w.messages(), int(rank), tagPost, false) // asks a rank whether it has returned
			if err := w.group.Engine.Gone(int(rank)); err != nil {
				return err
			}
		}
	}
}

// watch has this rank hear of the end of each member, from now on.
func (w *Window) watch() {
	if !w.watched.Swap(true) {
		w.board.WatchAll()
	}
}

// Lock opens an epoch at a rank; §12.5.3. If ctx ends first, the lock is let go when it comes.
func (w *Window) Lock(ctx context.Context, op string, rank int, mode rma.Mode) error {
	if w.lockShort(ctx, rank, mode) {
		return nil
	}
	var ticket uint64
	taken, had, back := false, false, false
	err := w.change(op, rank, func(*rma.Epochs) error { // not before: the memory may be gone
		back = w.mapped && mode == rma.Exclusive && w.isHeldBack()
		return nil
	})
	if err != nil {
		return err
	}
	if back {
		w.standBack(ctx)
	}
	err = w.change(op, rank, func(e *rma.Epochs) error {
		if err := e.Lock(int32(rank), mode); err != nil {
			return err
		}
		if w.mapped && (ctx == nil || ctx.Err() == nil) {
			taken = true
			if ticket, had = w.enter(rank, mode); had { // the usual case
				w.note(rank)
				e.LockReturns(int32(rank), true)
			}
		}
		return nil
	})
	if err != nil || had {
		return err
	}
	switch {
	case taken: // also if ctx has ended since: a ticket that is not used would keep the lock from all
		err = w.turn(ctx, op, rank, mode, ticket)
	case ctx != nil && ctx.Err() != nil:
		err = ctx.Err()
	default:
		err = w.locked(ctx, op, func() error {
			return w.ask(op, rank, &rma.Request{Kind: rma.Lock, Op: uint8(mode)}, nil, nil)
		}, func() { w.giveUp(op, rank) })
	}
	w.change(op, rank, func(e *rma.Epochs) error {
		if err == nil && w.mapped {
			w.note(rank)
		}
		e.LockReturns(int32(rank), err == nil)
		return nil
	})
	return w.wrap(op, rank, err)
}

// locked runs get, which waits for locks. If ctx ends first, release follows it in the background.
func (w *Window) locked(ctx context.Context, op string, get func() error, release func()) error {
	if ctx == nil {
		return get()
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	done := w.background(op, get)
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		w.background(op, func() error {
			if err := <-done; err != nil {
				return err
			}
			release()
			return nil
		})
		return ctx.Err()
	}
}

// Unlock ends the epoch of Lock at a rank. If ctx ends first, the lock is let go when the rank answers.
func (w *Window) Unlock(ctx context.Context, rank int) error {
	if w.unlockShort(rank) {
		return nil
	}
	var mode rma.Mode
	err := w.change("Unlock", rank, func(e *rma.Epochs) (err error) {
		if mode, err = e.Unlock(int32(rank)); err == nil && w.mapped && e.None() {
			w.short.Store(shortNone)
		}
		return err
	})
	if err != nil {
		return err
	}
	return w.leaveWithin(ctx, "Unlock", rank, mode)
}

// leaveWithin is leave, which goes on in the background if ctx ends first.
func (w *Window) leaveWithin(ctx context.Context, op string, rank int, mode rma.Mode) error {
	if ctx == nil || w.mapped {
		return w.leave(op, rank, mode)
	}
	return w.finish(ctx, op, rank, func() error { return w.leave(op, rank, mode) })
}

// leave ends the operations at a rank and lets its lock go.
func (w *Window) leave(op string, rank int, mode rma.Mode) error {
	if !w.mapped {
		return w.askUnlock(op, rank)
	}
	w.parts[rank].access.Store(accessNone)
	rma.Leave(w.parts[rank], mode)
	return nil
}

// LockAll opens an epoch at all ranks; §12.5.3.
func (w *Window) LockAll(ctx context.Context) error {
	const op = "LockAll"
	if err := w.change(op, ranks.Undefined, (*rma.Epochs).LockAll); err != nil {
		return err
	}
	var err error
	if w.mapped {
		err = w.acquireAll(ctx, op)
	} else {
		// Memory that this rank loads and stores itself; reach gets the other locks.
		err = w.locked(ctx, op, func() error {
			for rank := range w.near {
				if _, err := w.reach(op, rank); err != nil {
					return err
				}
			}
			return nil
		}, func() {})
	}
	var has []int
	w.change(op, ranks.Undefined, func(e *rma.Epochs) error {
		if e.LockAllReturns(err == nil); err != nil {
			has = w.takeLocks()
		}
		return nil
	})
	if len(has) > 0 {
		late := has // has itself stays off the heap
		w.background("", func() error {
			var errs []error
			for _, rank := range late {
				errs = append(errs, w.giveUp(op, rank))
			}
			return errors.Join(errs...)
		})
	}
	return w.wrap(op, ranks.Undefined, err)
}

// acquireAll gets a shared lock of each rank, or none. It waits for a lock only while it has no other one: a rank with
// an exclusive lock of one rank may wait for the lock of another one, and neither would ever go on.
func (w *Window) acquireAll(ctx context.Context, op string) error {
	if ctx != nil && ctx.Err() != nil {
		return ctx.Err()
	}
	has := -1
	for waits := 1; ; waits++ {
		if has = w.tryAll(has); has < 0 {
			return nil
		}
		if waits == waitsInTurn {
			w.heldBack().Add(1)
			defer w.heldBack().Add(^uint64(0))
		}
		if ticket, had := w.enter(has, rma.Shared); !had {
			if err := w.turn(ctx, op, has, rma.Shared, ticket); err != nil {
				return err
			}
		}
	}
}

// tryAll gets a shared lock of each rank, where the caller has the lock of one, or none (-1). If a lock cannot be had
// at once, it gets none, lets that one go, and returns the rank; -1: it has got all.
func (w *Window) tryAll(has int) (busy int) {
	for i, p := range w.parts {
		if i == has {
			continue
		}
		if rma.TryEnter(p, rma.Shared) {
			rma.Entered(p, rma.Shared)
			continue
		}
		w.leaveAll(i)
		if has > i {
			rma.Leave(w.parts[has], rma.Shared)
		}
		return i
	}
	return -1
}

// A LockAll that has waited for several locks, and has always found another one taken, has ranks that ask for
// exclusive locks stand back for a while. A rank that has a lock does not, nor does any rank for long: LockAll may wait
// for a lock whose holder waits for that rank.
const (
	waitsInTurn = 3
	standsBack  = 10 * time.Millisecond
)

// heldBack counts the calls of LockAll that have other ranks stand back.
func (w *Window) heldBack() *atomic.Uint64 { return w.parts[0].word(lineHeld) }

// isHeldBack reports whether a rank without locks is to stand back. A rank that has failed may have left the word up.
func (w *Window) isHeldBack() bool {
	if w.heldBack().Load() == 0 {
		return false
	}
	failed, _ := w.board.Failed()
	return failed < 0
}

// standBack returns when no LockAll has ranks stand back, or this rank must not any more.
func (w *Window) standBack(ctx context.Context) {
	began := time.Now()
	for wait := time.Microsecond; w.isHeldBack() && time.Since(began) < standsBack; wait *= 2 {
		if len(w.locks()) > 0 || ctx != nil && ctx.Err() != nil {
			return
		}
		time.Sleep(wait)
	}
}

// leaveAll lets the shared locks of the first ranks go.
func (w *Window) leaveAll(ranks int) {
	for _, p := range w.parts[:ranks] {
		rma.Leave(p, rma.Shared)
	}
}

// UnlockAll ends the epoch of LockAll.
func (w *Window) UnlockAll(ctx context.Context) error {
	const op = "UnlockAll"
	var has []int
	err := w.change(op, ranks.Undefined, func(e *rma.Epochs) error {
		err := e.UnlockAll()
		if err == nil {
			has = w.takeLocks()
		}
		return err
	})
	if err != nil {
		return err
	}
	if w.mapped {
		w.leaveAll(len(w.parts))
		return nil
	}
	if ctx == nil {
		return w.letGo(op, has)
	}
	late := has // likewise
	return w.finish(ctx, op, ranks.Undefined, func() error { return w.letGo(op, late) })
}

// takeLocks is called when the epoch of LockAll ends: it returns the ranks whose locks LockAll has got by request.
// Those that are still to come are let go then. Another epoch of LockAll has locks of its own. mu is held.
func (w *Window) takeLocks() (has []int) {
	for rank, r := range w.far {
		if r.locked {
			has = append(has, rank)
		}
		r.locked = false
		if c := r.contact; c != nil && c.lock {
			c.abandoned, r.contact = true, nil
		}
	}
	return has
}

// letGo lets such locks go. It returns the first error.
func (w *Window) letGo(op string, has []int) (err error) {
	for _, rank := range has {
		if failed := w.askUnlock(op, rank); err == nil {
			err = failed
		}
	}
	return err
}

// wrap names the call in an error of the engine.
func (w *Window) wrap(op string, rank int, err error) error {
	return w.group.Wrap(op, rank, ranks.Undefined, err)
}
