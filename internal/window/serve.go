package window

import (
	"bytes"
	"errors"

	"github.com/gorun-mpi/mpi/pml"
	"github.com/gorun-mpi/mpi/rma"
)

// A window whose ranks do not all share a board takes requests: messages by which ranks that cannot reach this rank's
// memory have it do what they want. The engine hands them over one at a time, under its lock (pml.Window), also while
// this rank computes. What another rank says is hostile until it is checked here.

// served is the end of a window that takes requests.
type served struct {
	w       *Window
	port    *pml.Window
	lock    rma.Queue
	broken  rma.Answer     // a rank is gone that had the lock: no rank gets it any more; Done: none is
	gone    map[int32]bool // ranks of the world that have failed: what they have sent before is not handled
	origins map[int32]*origin
	spare   *origin // for reuse; nil: none
	out     []byte  // an answer that is being made
	handled int64   // bytes of an Update or Fetch with runs that is handled again: the elements in these are updated
	fetched []byte  // of such a Fetch, the elements as they were; of elementsMost bytes, or nil
	steps   steps   // that the device makes for the request that is handled

	// causes are the texts of each rma.DeviceFailed that a rank is still to be told, by rank; nil: no device has failed.
	causes map[int32]string
}

// origin is what is under way of a rank's requests. There is one while something is.
type origin struct {
	s       *served
	rank    int32         // of the world
	moving  int           // messages with elements that are under way
	replies int           // answers that are under way
	wrong   rma.Answer    // what the next Flush or Unlock is told
	flushes []rma.Request // Flush and Unlock, that wait until moving is 0
}

// A rank that has more under way than this is none of ours, and would take memory here without bound: it counts as one
// that has failed. A rank of ours keeps the limits of rma. Twice as much may be under way, as far as is known here,
// since this rank hears of an end later.
const (
	movingMost  = 2 * rma.MovesMost
	repliesMost = 2 * 2 * rma.AsksMost // to Lock, and to the others
	flushesMost = 2 * rma.AsksMost
)

// serve starts to take requests.
func (w *Window) serve() {
	s := &served{w: w, origins: map[int32]*origin{}, gone: map[int32]bool{},
		out: make([]byte, rma.AnswerSize+elementsMost)}
	w.served = s
	handler := pml.Handler(s)
	if w.accel != nil {
		handler = servedOnDevice{s}
	}
	s.port = w.group.Engine.OpenWindow(w.messages(), tagRequest, make([]byte, requestMost), handler)
	if w.regions == nil && w.accel == nil {
		s.port.TakeNotes(tagNote, rma.MostNotes)
	}
	if w.nic {
		w.stepByDevice()
	}
}

// Handle implements pml.Handler.
func (s *served) Handle(source int32, msg []byte) (again bool) {
	var r rma.Request
	elements, err := r.Decode(msg)
	if err != nil || s.w.group.RankOf(source) < 0 || s.gone[source] {
		s.handled = 0
		s.w.keepOut(nil)
		// Of no rank of the window, or of a program that is none of ours: no call waits for an answer.
		return s.steps.abandon()
	}
	if s.handle(source, &r, elements) {
		return true
	}
	s.w.keepOut(nil)
	if r.Then != 0 {
		s.end(source, rma.Request{Kind: r.Then, Slot: r.Slot})
	}
	return false
}

// handle does what a request is about, but for its Then. It reports whether the request is to be handled again.
func (s *served) handle(source int32, r *rma.Request, elements []byte) (again bool) {
	var err error
	mem, in, inside := s.w.requested(r.At, r.N)
	defer in.leave()
	if r.Runs > 0 {
		return s.handleRuns(source, r, mem, inside, elements)
	}
	switch r.Kind {
	case rma.Info:
		s.lend(source, r.Slot)
	case rma.Put:
		s.note(source, r, inside, len(elements) == len(mem), nil)
		if inside && len(elements) == len(mem) {
			copy(mem, elements)
		}
	case rma.PutAlone: // one that is outside is received into no memory, so that its sender goes on
		s.note(source, r, inside, true, nil)
		if o := s.moves(source); o != nil {
			s.port.Recv(int(source), r.Slot, mem, in.during(o))
		}
	case rma.Get:
		s.note(source, r, inside, true, nil)
		if len(mem) <= elementsMost && s.port.SendNow(int(source), r.Slot, mem) {
			break // the usual case: no end is to be heard of
		}
		if o := s.moves(source); o != nil {
			s.port.Send(int(source), r.Slot, mem, in.during(o))
		}
	case rma.Update:
		ok := len(elements) == len(mem)
		if inside && ok {
			if ok, err = s.w.combine(r.Op, s.offset(r), mem, elements, nil); err == errBusy {
				return true
			}
		}
		s.note(source, r, inside, ok, err)
	case rma.Fetch:
		ok := (len(elements) == len(mem) || len(elements) == 0) && len(mem) <= elementsMost
		if inside && ok {
			before := s.out[rma.AnswerSize:][:len(mem)]
			if ok, err = s.w.combine(r.Op, s.offset(r), mem, elements, before); err == errBusy {
				return true
			}
		}
		s.answer(source, r.Slot, s.verdict(r, inside, ok, err), len(mem))
	case rma.Swap:
		ok := r.N == 1 && len(elements) == 2*len(mem) && len(mem) <= 8
		if inside && ok {
			if ok, err = s.w.swap(s.offset(r), mem, elements, s.out[rma.AnswerSize:][:len(mem)]); err == errBusy {
				return true
			}
		}
		s.answer(source, r.Slot, s.verdict(r, inside, ok, err), len(mem))
	case rma.Lock:
		switch {
		case s.broken.Result != rma.Done:
			s.answer(source, r.Slot, s.broken, 0)
		case !s.lock.Ask(rma.Asked{Rank: source, Slot: r.Slot, Mode: rma.Mode(r.Op &^ rma.LockFirst),
			First: r.Op&rma.LockFirst != 0}):
			s.answer(source, r.Slot, rma.Answer{Result: rma.Senseless}, 0)
		default:
			s.grant()
		}
	case rma.Flush, rma.Unlock:
		s.end(source, *r)
	case rma.Abandon:
		s.abandoned(source, rma.Returned)
	}
	return false
}

// end handles a Flush or an Unlock.
func (s *served) end(source int32, r rma.Request) {
	switch o := s.origins[source]; {
	case o == nil || o.moving == 0:
		s.flushed(source, &r)
	case len(o.flushes) == flushesMost:
		s.Failed(source, nil)
	default:
		o.flushes = append(o.flushes, r)
	}
}

// offset is how many bytes of this rank's memory are before what a request is about.
func (s *served) offset(r *rma.Request) int64 { return r.At * int64(s.w.elem) }

// verdict is the answer to a request. inside: this rank has its elements. ok: it can be. err is of combine.
func (s *served) verdict(r *rma.Request, inside, ok bool, err error) rma.Answer {
	half, _ := err.(*halfDone)
	switch {
	case !inside:
		return rma.Answer{Result: rma.Outside, Kind: r.Kind, At: r.At, N: r.N}
	case half != nil:
		return rma.Answer{Result: rma.HalfDone, Rank: int32(s.w.group.ToWorld(half.rank))}
	case !ok:
		return rma.Answer{Result: rma.Senseless}
	}
	return rma.Answer{}
}

// note is verdict for a request without an answer of its own: the next flush of its rank is told the first one that is
// not Done.
func (s *served) note(source int32, r *rma.Request, inside, ok bool, err error) {
	a := s.verdict(r, inside, ok, err)
	if a.Result == rma.Done {
		return
	}
	if o := s.origin(source); o.wrong.Result == rma.Done {
		o.wrong = a
	}
}

// lost reports whether another member of the board has failed, as far as is known. It is Window.dead for requests.
func (s *served) lost(p *part) bool {
	w := s.w
	if !w.watched.Swap(true) {
		w.board.Board.Watch()
	}
	failed := w.failedMember()
	return p != nil && (failed == p.place || s.gone[int32(w.group.ToWorld(p.rank))])
}

func (s *served) origin(source int32) *origin {
	o := s.origins[source]
	if o == nil {
		if o, s.spare = s.spare, nil; o == nil {
			o = new(origin)
		}
		*o = origin{s: s, rank: source}
		s.origins[source] = o
	}
	return o
}

// rest forgets o if nothing is under way of its rank, and nothing is to be told.
func (s *served) rest(o *origin) {
	if o.moving == 0 && o.replies == 0 && o.wrong.Result == rma.Done && s.origins[o.rank] == o {
		delete(s.origins, o.rank)
		s.spare = o
	}
}

// moves notes another message with elements, and returns what is told when that is over; nil: there must not be so
// many.
func (s *served) moves(source int32) *origin {
	o := s.origin(source)
	if o.moving == movingMost {
		s.Failed(source, nil)
		return nil
	}
	o.moving++
	return o
}

// Follow implements pml.Follower.
func (o *origin) Follow(_ pml.Status, err error) {
	if o.moving--; err != nil && !errors.Is(err, pml.ErrTruncate) { // that is of elements outside, which have no memory
		o.s.Failed(o.rank, err)
		return
	}
	if o.moving > 0 || o.s.gone[o.rank] {
		return
	}
	waiting, rank := o.flushes, o.rank
	o.flushes = nil
	for i := range waiting {
		o.s.flushed(rank, &waiting[i]) // which may let o rest, and another rank have it
	}
	if o.s.origins[rank] == o {
		o.s.rest(o)
	}
}

// replied is an origin that is told when an answer is over.
type replied origin

// Follow implements pml.Follower.
func (r *replied) Follow(pml.Status, error) {
	o := (*origin)(r)
	o.replies--
	o.s.rest(o)
}

// flushed answers a Flush or an Unlock.
func (s *served) flushed(source int32, r *rma.Request) {
	var result rma.Answer
	if o := s.origins[source]; o != nil && (r.Kind != rma.Unlock || r.Op != rma.UnlockUnused) {
		result = o.wrong
		o.wrong = rma.Answer{}
		s.rest(o)
	}
	if r.Kind == rma.Unlock && !s.lock.Leave(source) {
		result = rma.Answer{Result: rma.Senseless}
	}
	s.answer(source, r.Slot, result, 0)
	s.grant()
}

// grant answers those that have the lock from now on.
func (s *served) grant() {
	for a, ok := s.lock.Grant(); ok; a, ok = s.lock.Grant() {
		s.answer(a.Rank, a.Slot, rma.Answer{}, 0)
	}
}

// Failed implements pml.Handler.
func (s *served) Failed(rank int32, _ error) {
	if s.gone[rank] {
		return
	}
	s.gone[rank] = true
	delete(s.origins, rank)
	delete(s.causes, rank)
	s.abandoned(rank, rma.PeerFailed)
}

// abandoned is called when a rank makes no request any more. why: what others hear that want the lock, if it has that.
func (s *served) abandoned(rank int32, why rma.Result) {
	waiting, had := s.lock.Failed(rank)
	if had && s.broken.Result == rma.Done {
		s.broken = rma.Answer{Result: why, Rank: rank}
	}
	for _, a := range waiting {
		s.answer(a.Rank, a.Slot, s.broken, 0)
	}
	s.grant()
}

// Returned implements pml.Handler. Locks that this rank has elsewhere, and here, are never let go.
func (s *served) Returned() {
	me := s.w.group.WorldRank
	for _, rank := range s.w.locks() {
		to := s.w.group.ToWorld(rank)
		if int32(to) == me {
			s.abandoned(me, rma.Returned)
			continue
		}
		s.port.Send(to, tagRequest, (&rma.Request{Kind: rma.Abandon}).Append(nil), nil)
	}
}

// Locks implements pml.Handler.
func (s *served) Locks() []int32 { return s.w.lockedRanks() }

// answer sends an answer. If it is Done, it has so many bytes of elements, which are in out behind it.
func (s *served) answer(to, slot int32, a rma.Answer, elements int) {
	if s.gone[to] {
		return
	}
	b := a.Append(s.out[:0])
	if a.Result == rma.Done {
		b = b[:len(b)+elements]
	} else if a.Result == rma.DeviceFailed {
		b = append(b, s.takeCause(to)...)
	}
	if s.port.SendNow(int(to), slot, b) {
		return
	}
	o := s.origin(to)
	if o.replies == repliesMost {
		s.Failed(to, nil)
		return
	}
	o.replies++
	s.port.Send(int(to), slot, bytes.Clone(b), (*replied)(o))
}
