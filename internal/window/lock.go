package window

import (
	"context"
	"errors"
	"time"

	"github.com/gorun-mpi/mpi/internal/mpierr"
	"github.com/gorun-mpi/mpi/internal/ranks"
	"github.com/gorun-mpi/mpi/rma"
)

// Each rank of a window has a lock, whose words (rma.Word) are lines of the board: any member takes a ticket there, and
// sleeps until it has its turn. No message is sent, and the rank whose lock it is has no part in that.
const (
	// lineGuard is the line behind those words: a lock that is held for the length of one operation on elements which
	// no atomic step can update.
	lineGuard = rma.Words
	linesEach = int(lineGuard) + 1
)

func (p *part) line(i rma.Word) int { return p.place*linesEach + int(i) }

// Load implements rma.Memory.
func (p *part) Load(i rma.Word) uint64 { return p.w.board.Lines[p.line(i)].Word.Load() }

// Add implements rma.Memory.
func (p *part) Add(i rma.Word) uint64 {
	n := p.w.board.Lines[p.line(i)].Word.Add(1)
	if i != rma.Next { // for which no rank sleeps
		p.w.board.Wake(p.line(i))
	}
	return n
}

// acquire returns when this rank has the lock of another one, or of itself. The error is that a member has failed: then
// the lock may never come.
func (w *Window) acquire(op string, rank int, mode rma.Mode) error {
	if !w.mapped {
		return w.ask(op, rank, &rma.Request{Kind: rma.Lock, Op: uint8(mode)}, nil, nil)
	}
	m := w.near[rank]
	ticket := rma.Enter(m)
	if err := w.await(m.line(rma.Turn(mode)), ticket); err != nil {
		return err
	}
	rma.Entered(m, mode)
	return nil
}

// await returns when a word is at least so much.
func (w *Window) await(line int, least uint64) error {
	word := &w.board.Lines[line].Word
	if word.Load() >= least {
		return nil
	}
	if !w.watched.Swap(true) {
		w.board.WatchAll()
	}
	// One goroutine at a time sleeps at the board. Another one looks now and then whether it need not.
	const most = time.Millisecond
	for wait := time.Microsecond; !w.waits.TryLock(); wait = min(2*wait, most) {
		time.Sleep(wait)
		if word.Load() >= least {
			return nil
		}
	}
	defer w.waits.Unlock()
	return w.board.Await(line, least)
}

// Lock opens an epoch at a rank; §12.5.3. If ctx ends first, the lock is let go when it comes.
func (w *Window) Lock(ctx context.Context, op string, rank int, mode rma.Mode) error {
	if err := w.change(op, rank, func(e *rma.Epochs) error { return e.Lock(int32(rank), mode) }); err != nil {
		return err
	}
	err := w.locked(ctx, op, func() error { return w.acquire(op, rank, mode) }, func() { w.leave(op, rank, mode) })
	if err == nil {
		return nil
	}
	w.change(op, rank, func(e *rma.Epochs) error { _, err := e.Unlock(int32(rank)); return err })
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
	done := w.group.InBackground(op, get)
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		w.group.InBackground(op, func() error {
			if err := <-done; err != nil {
				return err
			}
			release()
			return nil
		})
		return ctx.Err()
	}
}

// Unlock ends the epoch of Lock at a rank.
func (w *Window) Unlock(rank int) error {
	var mode rma.Mode
	err := w.change("Unlock", rank, func(e *rma.Epochs) (err error) {
		mode, err = e.Unlock(int32(rank))
		return err
	})
	if err != nil {
		return err
	}
	return w.leave("Unlock", rank, mode)
}

// leave ends the operations at a rank and lets its lock go.
func (w *Window) leave(op string, rank int, mode rma.Mode) error {
	if !w.mapped {
		return w.askUnlock(op, rank)
	}
	rma.Leave(w.near[rank], mode)
	return nil
}

// LockAll opens an epoch at all ranks; §12.5.3.
func (w *Window) LockAll(ctx context.Context) error {
	const op = "LockAll"
	if err := w.change(op, ranks.Undefined, (*rma.Epochs).LockAll); err != nil {
		return err
	}
	n := 0
	release := func() {
		if !w.mapped {
			w.letGo(op)
			return
		}
		for rank := range n {
			rma.Leave(w.near[rank], rma.Shared)
		}
	}
	err := w.locked(ctx, op, func() error {
		if !w.mapped { // memory that this rank loads and stores itself; reach gets the other locks
			for rank := range w.near {
				if _, err := w.reach(op, rank); err != nil {
					release()
					return err
				}
			}
			return nil
		}
		for ; n < w.group.Size; n++ {
			if err := w.acquire(op, n, rma.Shared); err != nil {
				release()
				return err
			}
		}
		return nil
	}, release)
	if err == nil {
		return nil
	}
	w.change(op, ranks.Undefined, (*rma.Epochs).UnlockAll)
	return w.wrap(op, ranks.Undefined, err)
}

// UnlockAll ends the epoch of LockAll.
func (w *Window) UnlockAll() error {
	const op = "UnlockAll"
	if err := w.change(op, ranks.Undefined, (*rma.Epochs).UnlockAll); err != nil {
		return err
	}
	if w.mapped {
		for rank := range w.group.Size {
			rma.Leave(w.near[rank], rma.Shared)
		}
		return nil
	}
	return w.letGo(op)
}

// letGo lets all locks go that LockAll has got by request.
func (w *Window) letGo(op string) error {
	return w.eachRemote(func(rank int, r *Remote) error {
		r.mu.Lock()
		defer r.mu.Unlock()
		if !r.locked {
			return nil
		}
		r.locked = false
		return w.askUnlock(op, rank)
	})
}

// Guard implements Guard. It waits while another rank is in the Guard.
func (p *part) Guard(f func()) error {
	for looks := 0; !p.tryGuard(f); looks++ {
		if looks%1024 != 1023 {
			continue
		}
		if err := p.abandoned(); err != nil {
			return err
		}
		time.Sleep(time.Microsecond) // the holder has lost its CPU
	}
	return nil
}

// abandoned reports why the guard may never be free: a rank has failed, which may be its holder.
func (p *part) abandoned() error {
	if p.w.board == nil {
		return nil
	}
	if i, _ := p.w.board.Failed(); i < 0 {
		return nil
	}
	return p.w.fail("", mpierr.ErrPeerFailed, p.rank, "a rank has failed that may have been updating the elements")
}

// tryGuard is Guard that does not wait. It reports whether it has called f.
func (p *part) tryGuard(f func()) bool {
	word := &p.w.guard
	if p.w.board != nil {
		word = &p.w.board.Lines[p.line(lineGuard)].Word
	}
	if !word.CompareAndSwap(0, 1) {
		return false
	}
	f()
	word.Store(0)
	return true
}

// impatient is a Guard that does not wait, for requests, which are handled under the engine's lock.
type impatient struct{ *part }

// Guard implements Guard.
func (p impatient) Guard(f func()) error {
	if p.tryGuard(f) {
		return nil
	}
	if err := p.abandoned(); err != nil {
		return err
	}
	return errBusy
}

var errBusy = errors.New("another rank is in the guard")

// combine is Updater's for memory of this rank, and a request. ok: there is such an operator. busy: nothing has been
// done, since another rank is in the guard.
func (w *Window) combine(op uint8, dst, src, before []byte) (ok, busy bool) {
	ok, err := w.update.Update(op, dst, src, before, w.own)
	return ok && err == nil, err == errBusy
}

// Update is Updater's for memory of a rank that is mapped here.
func (w *Window) Update(call string, rank int, op uint8, dst, src, before []byte) error {
	_, err := w.update.Update(op, dst, src, before, w.near[rank])
	return w.group.Wrap(call, rank, ranks.Undefined, err)
}

func (w *Window) swap(dst, src, before []byte) bool { return w.update.Swap(dst, src, before) }

// wrap names the call in an error of the engine.
func (w *Window) wrap(op string, rank int, err error) error {
	return w.group.Wrap(op, rank, ranks.Undefined, err)
}
