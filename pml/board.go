package pml

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/gorun-mpi/mpi/transport"
)

// Board is a transport.Board and what waiting for its words needs. One goroutine at a time uses it.
type Board struct {
	*transport.Board
	e       *Engine
	members []int32 // ranks of the world

	// Guarded by the engine's lock.
	err    error    // why no wait is of use any more
	r      *Request // that waits for line's word to be least; nil: none does
	line   int
	least  uint64
	from   []int32 // see AwaitFrom; nil: the member that has the line
	cookie uint64
	locks  func() []int32 // Handler.Locks, of locks that are words of the board; nil: it has no locks

	// For calls by messages, which have a context number of their own.
	ctx      uint32
	mismatch func(at bool) (i int, why []byte, err error) // nil: calls are not watched
	message  *Request                                     // that waits for a message; nil: none does
}

// boards are those that are open.
type boards struct {
	all   []*Board
	last  uint64 // cookie
	looks uint   // in vain, of callers that do not wait
}

// boardsOf are those of e's device; the error is that it has none.
func boardsOf(e *Engine) (*transport.Boards, error) {
	if b := e.dev.Facts().Boards; b != nil && e.direct {
		return b, nil
	}
	return nil, fmt.Errorf("%w: %s has no memory that several ranks map", transport.ErrUnavailable, e.dev.Name())
}

// MakeBoard is transport.Boards' Make for the rank of e.
func MakeBoard(e *Engine, members []int32, lines, bytes int) (*Board, []byte, error) {
	by, err := boardsOf(e)
	if err != nil {
		return nil, nil, err
	}
	b, ticket, err := by.Make(members, lines, bytes)
	if err != nil {
		return nil, nil, err
	}
	return newBoard(e, b, members), ticket, nil
}

// JoinBoard is transport.Boards' Join for the rank of e.
func JoinBoard(e *Engine, members []int32, lines, bytes int, ticket []byte) (*Board, error) {
	by, err := boardsOf(e)
	if err != nil {
		return nil, err
	}
	b, err := by.Join(members, lines, bytes, ticket)
	if err != nil {
		return nil, err
	}
	return newBoard(e, b, members), nil
}

func newBoard(e *Engine, on *transport.Board, members []int32) *Board {
	e.lock()
	defer e.unlock()
	e.boards.last++
	b := &Board{Board: on, e: e, members: members, err: e.closed, cookie: e.boards.last}
	for i, rank := range members {
		if err := e.path.gone(rank); err != nil && b.err == nil {
			b.fail(i, err)
		}
	}
	e.boards.all = append(e.boards.all, b)
	return b
}

// Close gives the board back. It is not used any more.
func (b *Board) Close() {
	b.e.lock()
	defer b.e.unlock()
	b.e.boards.all = slices.DeleteFunc(b.e.boards.all, func(o *Board) bool { return o == b })
	b.Board.Close()
}

const (
	// boardSpins looks at a word take a microsecond or two; so long a rank with its processor to itself does nothing
	// else.
	boardSpins = 2000
	// boardYield is for how long a crowded rank gives its processor away after each look, and does nothing else.
	boardYield = 100 * time.Microsecond
	yieldCheck = 16 // looks at a word between two at the clock, then
)

// Await returns when the word of a line is at least so much. The error is that it may never be: a member has failed,
// or the engine has.
func (b *Board) Await(line int, least uint64) error {
	if b.Spin(line, least) {
		return nil
	}
	return b.sleep(nil, line, least, nil)
}

// AwaitFrom is Await after Spin of a word that other members raise, and that cc may end; nil: none. from are ranks of
// the world, each of which has still to raise the word: the wait ends if one has returned. It is not nil.
func (b *Board) AwaitFrom(cc context.Context, line int, least uint64, from []int32) error {
	return b.sleep(cc, line, least, from)
}

// Spin looks at a word for a while, and reports whether it is at least so much. Several goroutines may call it at a
// time.
func (b *Board) Spin(line int, least uint64) bool {
	word := &b.Lines[line].Word
	if word.Load() >= least {
		return true
	}
	p := &b.e.pace.policy
	switch {
	case p.YieldCPU:
		for began := (time.Time{}); ; { // most waits are over before the clock is read
			for range yieldCheck {
				if yieldProcessor(); word.Load() >= least {
					return true
				}
			}
			if began.IsZero() {
				began = time.Now()
			} else if time.Since(began) > boardYield {
				break
			}
		}
	case p.Most > 0:
		for range boardSpins {
			if word.Load() >= least {
				return true
			}
		}
	}
	return false
}

// sleep is AwaitFrom by way of the engine: what comes meanwhile is seen to, and the rank may sleep.
func (b *Board) sleep(cc context.Context, line int, least uint64, from []int32) error {
	b.e.lock()
	defer b.e.unlock()
	defer b.e.exitCall()
	word := &b.Lines[line].Word
	for word.Load() < least {
		// What ended the wait may have come after the word, like the other members' next call, which this rank does
		// not yet make.
		if err := b.sleepOnce(cc, line, least, from); err != nil && word.Load() < least {
			return err
		}
	}
	return nil
}

// sleepOnce returns, with the lock, when it is worth a look at the word. The error is that no other look is.
func (b *Board) sleepOnce(cc context.Context, line int, least uint64, from []int32) error {
	if err := b.look(); err != nil {
		return err
	}
	if err := b.lookApart(true); err != nil {
		return err
	}
	e := b.e
	r := e.requests.take()
	r.op = opBoard
	r.buf, r.cctx, r.peer = transport.Mem{}, cc, nil
	r.state, r.err, r.status = stActive, nil, Status{}
	e.load.outstanding++
	b.r, b.line, b.least, b.from = r, line, least, from
	b.Expect(line, least, b.cookie)
	e.await(r)
	err := r.err
	e.requests.putBack(r)
	return err
}

// WatchAll has waits end when any member fails, and not only the one whose word they wait for.
func (b *Board) WatchAll() {
	b.e.lock()
	b.Board.Watch()
	b.e.unlock()
}

// Crowded reports whether ranks outnumber the CPUs of this rank's host.
func (b *Board) Crowded() bool { return b.e.pace.policy.Crowded }

// Read is transport.Lending's, and an error also if a member has failed: it may have what it had lent back. It has
// said so before that, and Failed comes after what has been read.
func (b *Board) Read(i int, dst []byte, l transport.Loan, from int) error {
	err := b.Lending.Read(i, dst, l, from)
	b.moved(i, err)
	if i, _ := b.Failed(); i >= 0 {
		return b.Err()
	}
	return err
}

// Write is transport.Lending's, and an error also if a member has failed before.
func (b *Board) Write(i int, src []byte, l transport.Loan, from int) error {
	err := b.Lending.Write(i, src, l, from)
	b.moved(i, err)
	if err != nil {
		if gone := b.Err(); gone != nil {
			return gone
		}
	}
	return err
}

// moved is called with err, the result of a move to or from what member i lends, which may tell that the member has
// ended.
func (b *Board) moved(i int, err error) {
	if errors.Is(err, transport.ErrPeerGone) {
		b.Give(i, &PeerError{int(b.members[i]), err})
	}
}

// Err is why no wait is of use any more; nil: none that is known.
func (b *Board) Err() error {
	b.e.lock()
	defer b.e.unlock()
	return b.look()
}

// look is Err, with the lock.
func (b *Board) look() error {
	if b.err == nil {
		b.err = b.failure()
	}
	return b.err
}

// failure is what a member has said on the board, if one has.
func (b *Board) failure() error {
	i, why := b.Failed()
	switch {
	case i < 0:
		return nil
	case string(why) == whyReturned:
		return &PeerError{int(b.members[i]), ErrReturned}
	case len(why) > 0:
		return &BoardError{int(b.members[i]), why}
	}
	return &PeerError{int(b.members[i]), transport.ErrPeerGone}
}

// Refuse ends all waits at this board, here with err and at the other members with a BoardError: what member i does on
// it does not go with what this rank does.
func (b *Board) Refuse(i int, why []byte, err error) {
	b.e.lock()
	defer b.e.unlock()
	b.Fail(i, why)
	b.end(err)
}

// Give ends all waits at this board, here and at the other members: this rank, or one that it has heard of, has
// failed.
func (b *Board) Give(i int, err error) {
	b.e.lock()
	defer b.e.unlock()
	b.fail(i, err)
}

// End ends all waits at this board here, with err.
func (b *Board) End(err error) {
	b.e.lock()
	defer b.e.unlock()
	b.mismatch = nil // another communicator may get the context before the board is closed
	b.end(err)
}

// fail is called when member i has failed.
func (b *Board) fail(i int, err error) {
	b.Fail(i, nil)
	b.end(err)
}

// end makes all waits here end with err, now and later.
func (b *Board) end(err error) {
	if b.err == nil {
		b.err = err
	}
	b.Forget()
	b.endWait(nil)
}

// endWait ends the wait. Without an error the one who waits looks why.
func (b *Board) endWait(err error) {
	if r := b.r; r != nil {
		b.r = nil
		b.e.complete(r, err)
	}
}

// cancel is called when the context of r, which waits at a board, has ended.
func (s *boards) cancel(e *Engine, r *Request, why error) {
	for _, b := range s.all {
		if b.r == r {
			b.r = nil
			b.Forget()
			e.endCancelled(r, why)
		}
	}
}

// Watch has members that differ in their calls hear of that: those that wait at the board, and those that wait for
// messages with that context. apart is called with the engine's lock when a wait is to become a sleep: at the board
// (at), or whatever it is for; and now and then by calls that do not wait (glances). Its err is that a member does not
// go together with this one; then it says which, and what the others are told. With a nil mismatch the board knows only
// the context.
func (b *Board) Watch(ctx uint32, mismatch func(at bool) (i int, why []byte, err error)) {
	b.e.lock()
	b.ctx, b.mismatch = ctx, mismatch
	b.e.unlock()
}

// HasLocks says that words of the board are the locks of a window, whose messages have that context.
func (b *Board) HasLocks(ctx uint32, locks func() []int32) {
	b.e.lock()
	b.ctx, b.locks = ctx, locks
	b.e.unlock()
}

// lookApart ends the board if this member does not go together with another one. Once a member has failed they need
// not: one that has heard of it leaves out the steps of its calls. It has said so on the board before that, so the look
// for failed members comes last.
func (b *Board) lookApart(at bool) error {
	if b.mismatch == nil {
		return nil
	}
	i, why, err := b.mismatch(at)
	if err == nil {
		return nil
	}
	if failed := b.look(); failed != nil {
		return failed
	}
	b.Fail(i, why)
	b.end(err)
	return err
}

// sleeps is called when the caller of w is about to sleep, whatever it waits for: another member may wait at a board
// for steps that this one has left out. If w has a message of calls whose members may use a board, it is woken when
// that is ended by Refuse.
func (s *boards) sleeps(w *waitFor) {
	for _, b := range s.all {
		if b.mismatch == nil || b.r != nil {
			continue
		}
		if b.err == nil {
			b.lookApart(false)
		}
		if m := b.message; m != nil && b.refused() {
			b.message = nil // it may be another caller's, and what would have woken that is forgotten
			b.drop(m)
		}
		switch r := w.requestOn(b.ctx); {
		case r == nil || b.message != nil && b.message != r:
		case b.refused():
			b.drop(r)
		case b.err == nil:
			b.message = r
			me := slices.Index(b.members, int32(w.e.cfg.Rank))
			b.Expect(me*len(b.Lines)/len(b.members), math.MaxUint64, b.cookie) // that the board fails
		}
	}
}

// glancesPerSleep is the number of looks in vain that count as one sleep. Each could cost a look at the lines of all
// members.
const glancesPerSleep = 1 << 12

// glances is called when a caller has looked in vain whether w is ready. It does not wait, but may look again and
// again, so that this rank never sleeps.
func (s *boards) glances(w *waitFor) {
	if len(s.all) == 0 {
		return
	}
	if s.looks++; s.looks%glancesPerSleep == 0 {
		s.sleeps(w)
		s.awake(w)
	}
}

// awake is called when the wait is over.
func (s *boards) awake(w *waitFor) {
	for _, b := range s.all {
		if w.has(b.message) {
			if b.message = nil; b.r == nil {
				b.Forget()
			}
		}
	}
}

// refused reports whether the board has been ended because the members do not go together.
func (b *Board) refused() bool {
	err := b.look()
	if err == nil || b.e.closed != nil {
		return false
	}
	var peer *PeerError
	return !errors.As(err, &peer)
}

// drop ends what waits for messages of the board's calls: all receives, and r. Rounds without other messages go on to
// their end, so that they are over when the caller hears of it.
func (b *Board) drop(r *Request) {
	b.e.dropped.add(b.ctx)
	b.e.path.drop(b.ctx, b.err)
	if r.op != opRounds || r.rounds.open > 0 {
		b.e.cancel(r, b.err)
	}
}

// reached is called when what a board expects has come.
func (s *boards) reached(cookie uint64) {
	for _, b := range s.all {
		if b.cookie != cookie {
			continue
		}
		if r := b.message; r != nil && b.r == nil {
			b.message = nil
			if b.refused() {
				b.drop(r)
			}
		}
		b.endWait(nil)
	}
}

// failed is called when a rank of the world has failed, or this one.
func (s *boards) failed(rank int32, err error) {
	for _, b := range s.all {
		if i := slices.Index(b.members, rank); i >= 0 {
			b.fail(i, err)
		}
	}
}
