package window

import (
	"context"
	"time"

	"github.com/gorun-mpi/mpi/internal/ranks"
	"github.com/gorun-mpi/mpi/rma"
)

// Each rank of a window has a lock, whose words (rma.Word) are lines of the board: any member takes a ticket there, and
// sleeps until it has its turn. No message is sent, and the rank whose lock it is has no part in that.
const (
	// lineGuard is the line behind those words: a lock that is held for the length of one operation on elements which no
	// atomic step can update.
	lineGuard = int(rma.Words)
	linesEach = lineGuard + 1
)

// words is the lock of a rank.
type words struct {
	w    *Window
	rank int
}

func (m words) line(i rma.Word) int { return m.rank*linesEach + int(i) }

// Load implements rma.Memory.
func (m words) Load(i rma.Word) uint64 { return m.w.board.Lines[m.line(i)].Word.Load() }

// Add implements rma.Memory.
func (m words) Add(i rma.Word) uint64 {
	n := m.w.board.Lines[m.line(i)].Word.Add(1)
	if i != rma.Next { // for which no rank sleeps
		m.w.board.Wake(m.line(i))
	}
	return n
}

// acquire returns when this rank has the lock of another one, or of itself. The error is that a member has failed: then
// the lock may never come.
func (w *Window) acquire(rank int, mode rma.Mode) error {
	m := words{w, rank}
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
	err := w.locked(ctx, op, func() error { return w.acquire(rank, mode) }, func() { rma.Leave(words{w, rank}, mode) })
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
	if err == nil {
		rma.Leave(words{w, rank}, mode)
	}
	return err
}

// LockAll opens an epoch at all ranks; §12.5.3.
func (w *Window) LockAll(ctx context.Context) error {
	const op = "LockAll"
	if err := w.change(op, ranks.Undefined, (*rma.Epochs).LockAll); err != nil {
		return err
	}
	n := 0
	release := func() {
		for rank := range n {
			rma.Leave(words{w, rank}, rma.Shared)
		}
	}
	err := w.locked(ctx, op, func() error {
		for ; n < w.group.Size; n++ {
			if err := w.acquire(n, rma.Shared); err != nil {
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
	err := w.change("UnlockAll", ranks.Undefined, (*rma.Epochs).UnlockAll)
	if err == nil {
		for rank := range w.group.Size {
			rma.Leave(words{w, rank}, rma.Shared)
		}
	}
	return err
}

// Guard calls f while no other rank is in the Guard of that rank. f is short and does not panic.
func (w *Window) Guard(op string, rank int, f func()) error {
	word := &w.board.Lines[rank*linesEach+lineGuard].Word
	for looks := 0; !word.CompareAndSwap(0, 1); looks++ {
		if looks%1024 == 1023 { // its holder has lost its CPU, or has died
			if err := w.board.Err(); err != nil {
				return w.wrap(op, rank, err)
			}
			time.Sleep(time.Microsecond)
		}
	}
	f()
	word.Store(0)
	return nil
}

// wrap names the call in an error of the engine.
func (w *Window) wrap(op string, rank int, err error) error {
	return w.group.Wrap(op, rank, ranks.Undefined, err)
}
