package window

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/gorun-mpi/mpi/internal/mpierr"
	"github.com/gorun-mpi/mpi/pml"
)

// Ranks update the elements of a rank either by atomic steps, any number of ranks at a time, or one rank alone and the
// elements as plain memory: a loop over many takes a tenth of the time of so many atomic steps, and elements of more
// than 8 bytes have none. The two exclude each other. A rank that shares the memory counts itself in a word of its own
// (users), and then looks at the word of the memory (alone); one that wants it alone sets that, and then waits until no
// rank of the host shares any memory of the window. Both words say which rank the others wait for. Many goroutines of a
// rank that take turns might never all be outside: so a rank that has waited for long has the other one let no further
// goroutine in, by the upper half of users.

// Guard lets the caller update elements of one rank between Begin and End: by atomic steps, or alone. It neither waits
// nor panics meanwhile.
type Guard interface {
	// Begin returns an error if the caller cannot have the memory so.
	Begin(alone bool) error
	End(alone bool)
	// Worth reports whether n elements are updated sooner alone.
	Worth(n int) bool
}

const (
	// aloneLeast elements, and aloneEach more for each rank of the host whose users Alone looks at, take as long by
	// atomic steps (8 ns each) as alone.
	aloneLeast = 24
	aloneEach  = 4
	// aloneLooks is how often a rank looks whether another one has left the memory before it has that let no goroutine
	// in. A request, which must not wait, is handled again then.
	aloneLooks = 1 << 10
	// keptOut is added to users by each rank that waits so.
	keptOut = 1 << 32
)

// guard is a part's words for Guard.
type guard struct {
	alone *atomic.Uint64 // which rank has the memory of the part's rank alone: its place plus 1; 0: none
	users *atomic.Uint64 // goroutines of the part's rank that share the memory of a rank; and keptOut
}

// guards is what a window has for its Guards.
type guards struct {
	here         []*part       // the parts of this host's ranks
	alone, users atomic.Uint64 // the words of this rank, if there is no board
	died         atomic.Bool   // a rank of this host has failed, as far as this one has had to know
	kept         *part         // is kept out for the request that is handled; guarded by the engine's lock
}

// findGuards finds the words: of the board, or of this rank if it has none.
func (w *Window) findGuards() {
	if w.board != nil {
		w.findWords()
	}
	for _, p := range w.near {
		if p.alone, p.users = &w.alone, &w.users; w.board != nil {
			p.alone, p.users = p.word(lineAlone), p.word(lineUsers)
		}
		w.here = append(w.here, p)
	}
	w.own = w.near[w.group.Rank]
}

// Guard is that of a rank whose memory is mapped here.
func (w *Window) Guard(rank int) Guard { return w.near[rank] }

// Enter is Begin(false) of a rank of a mapped window, and does not wait. It reports whether the caller may make its
// atomic steps, and calls Leave then; otherwise it takes Update.
func (w *Window) Enter(rank int) bool { return w.parts[rank].enter() }

// Leave is End(false).
func (w *Window) Leave() { w.own.users.Add(^uint64(0)) }

func (p *part) enter() bool {
	if n := p.w.own.users.Add(1); p.alone.Load() == 0 && (n < keptOut || p.w.died.Load()) {
		return true
	}
	p.w.Leave()
	return false
}

// enterAgain is enter of a goroutine that waits: it reports whether it may come in, and counts itself only then, since
// others wait for it.
func (p *part) enterAgain() bool {
	return p.alone.Load() == 0 && (p.w.own.users.Load() < keptOut || p.w.died.Load()) && p.enter()
}

func (p *part) begin() bool { return p.alone.CompareAndSwap(0, uint64(p.w.own.place)+1) }

// holder is the rank that has the memory alone; nil: none has.
func (p *part) holder() *part {
	alone := p.alone.Load()
	for _, other := range p.w.here {
		if uint64(other.place)+1 == alone {
			return other
		}
	}
	return nil
}

func (p *part) unused() bool { return uint32(p.users.Load()) == 0 }

// unusedSoon reports whether the part's rank shares no memory, now or after some looks.
func (p *part) unusedSoon() bool {
	for looks := 0; !p.unused(); looks++ {
		if looks == aloneLooks {
			return false
		}
	}
	return true
}

// keepOut has the part's rank let no goroutine in; letIn ends it.
func (p *part) keepOut() { p.users.Add(keptOut) }
func (p *part) letIn()   { p.users.Add(^uint64(keptOut - 1)) }

// Worth reports whether n elements of any rank are updated sooner alone. Devices know nothing of a rank that is alone.
func (w *Window) Worth(n int) bool { return !w.nic && n > aloneLeast+aloneEach*len(w.here) }

// Worth implements Guard.
func (p *part) Worth(n int) bool { return p.w.Worth(n) }

// Begin implements Guard. It waits.
func (p *part) Begin(alone bool) error {
	if !alone {
		return p.until(p.enterAgain, p.holder)
	}
	if err := p.until(p.begin, p.holder); err != nil {
		return err
	}
	for _, other := range p.w.here {
		if other.unusedSoon() {
			continue
		}
		other.keepOut()
		err := p.until(other.unused, func() *part { return other })
		if other.letIn(); err != nil {
			p.alone.Store(0)
			return err
		}
	}
	return nil
}

// End implements Guard.
func (p *part) End(alone bool) {
	if alone {
		p.alone.Store(0)
	} else {
		p.w.Leave()
	}
}

// until returns when f has reported true, which waits for the rank that by returns, or, if that is nil, for one that is
// not known. The error is that the rank has failed.
func (p *part) until(f func() bool, by func() *part) error {
	for looks := 0; !f(); looks++ {
		if looks%1024 != 1023 {
			continue
		}
		if other := by(); p.w.dead(other) {
			return p.w.fail("", mpierr.ErrPeerFailed, p.rank, "%w", &halfDone{other.rank})
		}
		time.Sleep(time.Microsecond) // a rank has lost its CPU
	}
	return nil
}

// dead reports whether the rank of a part makes no call any more. It notes whether any rank of the host has failed,
// also for no part.
func (w *Window) dead(p *part) bool {
	if w.board == nil {
		return false // the rank is this one
	}
	w.watch()
	// The engine looks at its device: no other call may do so, and there the end of a rank is reported.
	w.group.Engine.Iprobe(w.messages(), pml.AnySource, tagPost, false)
	failed := w.failedMember()
	return p != nil && (failed == p.place || w.group.Engine.Gone(w.group.ToWorld(p.rank)) != nil)
}

// failedMember is the place on the board of a rank that has failed; -1: none that is known. It notes that for enter:
// such a rank may have kept others out.
func (w *Window) failedMember() int {
	i, _ := w.board.Failed()
	if i >= 0 {
		w.died.Store(true)
	}
	return i
}

// halfDone is the error of an update of elements that a rank of the window was updating when it failed.
type halfDone struct{ rank int }

func (e *halfDone) Error() string {
	return fmt.Sprintf("rank %d has failed while it updated elements there, which may be half done; free the window",
		e.rank)
}

// impatient is a Guard that does not wait, for requests, which are handled under the engine's lock.
type impatient struct{ *part }

// Begin implements Guard.
func (p impatient) Begin(alone bool) error {
	if !alone {
		if !p.enterAgain() {
			return p.busy(p.holder())
		}
		return nil
	}
	if !p.begin() {
		return p.busy(p.holder())
	}
	for _, other := range p.w.here {
		if !other.unusedSoon() {
			p.alone.Store(0)
			p.w.keepOut(other) // until it has the memory, or the request is over
			return p.busy(other)
		}
	}
	p.w.keepOut(nil)
	return nil
}

// busy is why the memory cannot be had, in which another rank is, or nil, if that is not known: later it can, or never.
func (p impatient) busy(other *part) error {
	if p.w.board != nil && p.w.served.lost(other) {
		return &halfDone{other.rank}
	}
	return errBusy
}

// keepOut is keepOut of a rank that the request waits for which is handled, and letIn of the one before; nil: it waits
// for none. It is called under the engine's lock.
func (w *Window) keepOut(other *part) {
	if w.kept == other {
		return
	}
	if w.kept != nil {
		w.kept.letIn()
	}
	if w.kept = other; other != nil {
		other.keepOut()
	}
}

var errBusy = errors.New("another rank is in the memory")

// combine is Updater's for memory of this rank, which is dst from byte at on, and a request. ok: there is such an
// operator. With an error nothing has been done: errBusy, since another rank is in the memory, or *halfDone. It is
// errBusy also while the device works.
func (w *Window) combine(op uint8, at int64, dst, src, before []byte) (ok bool, err error) {
	if w.device != nil {
		return w.served.steps.update(w, op, at, len(dst), src, before)
	}
	return w.update.Update(op, dst, src, before, impatient{w.own})
}

// swap is likewise Updater's Swap.
func (w *Window) swap(at int64, dst, src, before []byte) (ok bool, err error) {
	if w.device != nil {
		return w.served.steps.swap(w, at, src, before)
	}
	return w.update.Swap(dst, src, before, impatient{w.own})
}

// Update is Updater's for memory of a rank that is mapped here.
func (w *Window) Update(call string, rank int, op uint8, dst, src, before []byte) error {
	_, err := w.update.Update(op, dst, src, before, w.near[rank])
	return w.wrap(call, rank, err)
}

// SwapHere is Updater's Swap likewise.
func (w *Window) SwapHere(call string, rank int, dst, src, before []byte) error {
	_, err := w.update.Swap(dst, src, before, w.near[rank])
	return w.wrap(call, rank, err)
}
