package window

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"

	"github.com/gorun-mpi/mpi/internal/mpierr"
	"github.com/gorun-mpi/mpi/internal/ranks"
	"github.com/gorun-mpi/mpi/rma"
)

// In mapped memory a signal is one addition to a word of the rank that gets it. At most eight ranks share a word. Each
// has two bits there, one for each signal, and inverts a bit when it gives the signal. The bits above count the signals
// of all, so the word only grows, and a rank can sleep until it does. The rank that gets signals notes how each bit was
// when it took the last one, and writes nothing: the word's line of the cache goes from one rank to the other once.
const (
	sendersMost = 8 // of a word
	countAt     = sendersMost * int(signals)
	// linesLeast is how many words a rank has at least, if there are as many ranks: neighbours use different ones.
	linesLeast = 8
)

// linesOfSignals is how many lines a rank of so many has for the signals that it gets.
func linesOfSignals(members int) int {
	return max(min(members, linesLeast), (members+sendersMost-1)/sendersMost)
}

// given are the signals between this rank and another one.
type given struct {
	out, in slot
	// As this rank has left the bits of out, and as it has seen the bits of in when it took the last signal. mu guards
	// them.
	gave, took uint64
}

// slot is where a rank gives another one signals.
type slot struct {
	line int // of the board
	word *atomic.Uint64
	bit  int // of the first signal
}

// slotOf is where a rank gives p's rank signals.
func (p *part) slotOf(from *part) slot {
	lines := linesOfSignals(len(p.w.parts))
	line := p.lines + linesOfRank + from.place%lines
	return slot{line, &p.w.board.Lines[line].Word, from.place / lines * int(signals)}
}

// findSlots finds where the ranks of a mapped window give this one signals, and get its own.
func (w *Window) findSlots() {
	for _, p := range w.parts {
		p.out, p.in = p.slotOf(w.own), w.own.slotOf(p)
	}
}

// tell gives a signal to each rank of a group. mu is held.
func (w *Window) tell(s signal, group []int32) {
	for _, r := range group {
		p := w.parts[r]
		bit := uint64(1) << (p.out.bit + int(s))
		more := uint64(1)<<countAt + bit
		if p.gave&bit != 0 {
			more -= 2 * bit
		}
		p.gave ^= bit
		p.out.word.Add(more)
		w.board.Wake(p.out.line)
	}
}

// came reports whether a rank has given a signal that this one has not taken. now is the word in which it would. mu is
// held.
func (p *part) came(s signal) (yes bool, now uint64) {
	now = p.in.word.Load()
	return (now^p.took)>>(p.in.bit+int(s))&1 != 0, now
}

// take takes a signal that has come. mu is held.
func (p *part) take(s signal) { p.took ^= 1 << (p.in.bit + int(s)) }

// lacks are the ranks of a group whose signal has not come.
func (w *Window) lacks(s signal, group []int32) (left []int32) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, r := range group {
		if yes, _ := w.parts[r].came(s); !yes {
			left = append(left, r)
		}
	}
	return left
}

// begin is change without its end, for steps that do not change which operations are allowed at once. It takes mu, and
// keeps it unless there is an error.
func (w *Window) begin(op string, step func(*rma.Epochs) error) error {
	w.mu.Lock()
	err := w.usable(op, ranks.Undefined)
	if err == nil {
		if err = step(&w.epochs); err == nil {
			return nil
		}
		err = w.fail(op, mpierr.ErrEpoch, ranks.Undefined, "%w", err)
	}
	w.mu.Unlock()
	return err
}

// startMapped is Start in mapped memory. It takes the signals when all have come: a Start that fails leaves them there.
func (w *Window) startMapped(ctx context.Context, op string, group []int32) error {
	if err := w.begin(op, func(e *rma.Epochs) error { return e.Start(group) }); err != nil {
		return err
	}
	for i := 0; i < len(group); {
		p := w.parts[group[i]]
		yes, now := p.came(posted)
		if yes {
			i++
			continue
		}
		w.mu.Unlock()
		line := p.in.line
		var err error
		if !w.board.Spin(line, now+1) {
			_, err = w.sleep(ctx, op, line, now+1, func() []int32 { return w.lacks(posted, group) })
		}
		if w.mu.Lock(); err != nil {
			w.epochs.StartReturns(false)
			w.mu.Unlock()
			return err
		}
	}
	for _, r := range group {
		p := w.parts[r]
		p.take(posted)
		p.access.Store(accessStarted)
	}
	w.epochs.StartReturns(true)
	w.mu.Unlock()
	return nil
}

// completeMapped is Complete in mapped memory, where the operations are over.
func (w *Window) completeMapped(op string) error {
	var group []int32
	err := w.begin(op, func(e *rma.Epochs) (err error) {
		group, err = e.Complete()
		return err
	})
	if err != nil {
		return err
	}
	for _, r := range group {
		w.parts[r].access.Store(accessNone)
	}
	w.tell(completed, group)
	w.epochs.Recycle(group)
	w.mu.Unlock()
	return nil
}

// postMapped is Post in mapped memory.
func (w *Window) postMapped(op string, group []int32) error {
	if err := w.begin(op, func(e *rma.Epochs) error { return e.Post(group) }); err != nil {
		return err
	}
	w.tell(posted, group)
	w.mu.Unlock()
	return nil
}

// waitMapped is Wait in mapped memory, or Test, which does not wait. It takes the ranks off the group of Post that have
// called Complete, or that are gone.
func (w *Window) waitMapped(ctx context.Context, op string, waits bool) (over bool, err error) {
	var errs []error
	for {
		var group []int32
		err := w.begin(op, func(e *rma.Epochs) (err error) {
			group, err = e.Posted()
			return err
		})
		if err != nil { // another goroutine has ended the epoch
			return false, errors.Join(append(errs, err)...)
		}
		var line int
		var now uint64
		left := group[:0]
		for _, r := range group {
			p := w.parts[r]
			yes, word := p.came(completed)
			if yes {
				p.take(completed)
				continue
			}
			if len(left) == 0 {
				line, now = p.in.line, word
			}
			left = append(left, r)
		}
		if w.epochs.Remain(left); len(left) == 0 {
			w.epochs.Waited()
			w.epochs.Recycle(left)
			w.mu.Unlock()
			return true, errors.Join(errs...)
		}
		first := left[0]
		w.mu.Unlock()
		gone := left
		if !waits {
			// The engine goes on, and asks a rank whether it has returned.
			if _, err = w.look(op, completed, int(first)); err == nil {
				return false, errors.Join(errs...)
			}
			if gone = w.lacks(completed, []int32{first}); len(gone) == 0 {
				continue // it has called Complete, and was gone then
			}
		} else if w.board.Spin(line, now+1) {
			continue
		} else if gone, err = w.sleep(ctx, op, line, now+1, w.awaited); err == nil {
			continue
		}
		errs = append(errs, err)
		if !errors.Is(err, mpierr.ErrPeerFailed) {
			return false, errors.Join(errs...)
		}
		w.forgo(gone[0])
	}
}

// awaited are the ranks for whose Complete Wait waits.
func (w *Window) awaited() (left []int32) {
	w.mu.Lock()
	group, err := w.epochs.Posted()
	if err == nil {
		group = slices.Clone(group)
	}
	w.mu.Unlock()
	return w.lacks(completed, group)
}

// forgo takes a rank off the group of Post: it calls nothing any more.
func (w *Window) forgo(rank int32) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if group, err := w.epochs.Posted(); err == nil {
		w.epochs.Remain(slices.DeleteFunc(group, func(r int32) bool { return r == rank }))
	}
}
