package window

import (
	"encoding/binary"
	"errors"
	"sync"

	"github.com/gorun-mpi/mpi/internal/mpierr"
	"github.com/gorun-mpi/mpi/internal/ranks"
	"github.com/gorun-mpi/mpi/pml"
	"github.com/gorun-mpi/mpi/rma"
)

// Remote is what a window knows of a rank that it has asked for something.
type Remote struct {
	mu     sync.Mutex // held while one goroutine asks for what follows
	known  bool
	count  int64 // elements that it has
	locked bool  // by LockAll: that asks each rank for its lock when it is first used

	// flushing is held by the goroutine that waits for operations: another one's Flush returns when they are done.
	flushing sync.Mutex
	flushed  uint64 // of sent, how many are complete there; guarded by flushing

	// Guarded by the window's mu.
	pending []*pml.Request // messages that carry elements of operations
	spare   []*pml.Request // empty: the memory of the next pending
	sent    uint64         // operations whose requests have been sent
}

// scratch has a request, and an answer.
type scratch struct {
	out []byte
	in  [rma.AnswerSize + elementsMost]byte
}

// remote returns the record of a rank, made on first contact.
func (w *Window) remote(rank int) *Remote {
	w.mu.Lock()
	defer w.mu.Unlock()
	r := w.far[rank]
	if r == nil {
		r = &Remote{}
		w.far[rank] = r
	}
	return r
}

// reach prepares operations at a rank: this rank knows how many elements it has, and has its lock if LockAll is to have
// it.
func (w *Window) reach(op string, rank int) (*Remote, error) {
	r := w.remote(rank)
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.known && w.near[rank] == nil {
		var count [8]byte
		if err := w.ask(op, rank, &rma.Request{Kind: rma.Info}, nil, count[:]); err != nil {
			return nil, err
		}
		r.known, r.count = true, int64(binary.LittleEndian.Uint64(count[:]))
	}
	w.mu.Lock()
	all := w.epochs.LockedAll()
	w.mu.Unlock()
	if all && !r.locked {
		if err := w.ask(op, rank, &rma.Request{Kind: rma.Lock, Op: uint8(rma.Shared) | rma.LockFirst}, nil,
			nil); err != nil {
			return nil, err
		}
		r.locked = true
	}
	return r, nil
}

// slot is a tag that no other operation under way has.
func (w *Window) slot(of int32) int32 { return of + w.slots.Add(1)&(tagsEach-1) }

func (w *Window) take() *scratch {
	if s, ok := w.scratch.Get().(*scratch); ok {
		return s
	}
	return &scratch{out: make([]byte, 0, requestMost)}
}

// tellRequest sends a request whose answer, if it has one, is not waited for here.
func (w *Window) tellRequest(op string, rank int, r *rma.Request, elements []byte) error {
	s := w.take()
	defer w.scratch.Put(s)
	s.out = append(r.Append(s.out[:0]), elements...)
	err := w.group.Engine.Send(nil, w.messages(), w.group.ToWorld(rank), tagRequest, s.out, pml.Standard)
	return w.group.Wrap(op, rank, ranks.Undefined, err)
}

// ask sends a request and waits for its answer, which must have so many bytes behind the first ones.
func (w *Window) ask(op string, rank int, r *rma.Request, elements, answer []byte) error {
	s := w.take()
	defer w.scratch.Put(s)
	r.Slot = w.slot(tagAnswers)
	s.out = append(r.Append(s.out[:0]), elements...)
	to := w.group.ToWorld(rank)
	st, err := w.group.Engine.Sendrecv(nil, w.messages(), to, tagRequest, s.out, to, r.Slot, s.in[:])
	if err != nil {
		return w.group.Wrap(op, rank, ranks.Undefined, err)
	}
	switch result := rma.Answer(s.in[0]); {
	case st.Bytes < rma.AnswerSize:
	case result == rma.Outside:
		return w.fail(op, mpierr.ErrRange, rank, "an operation was outside the window")
	case result == rma.PeerFailed:
		return w.fail(op, mpierr.ErrPeerFailed, rank, "a rank has failed that had the lock")
	case result == rma.Done && st.Bytes == int64(rma.AnswerSize+len(answer)):
		copy(answer, s.in[rma.AnswerSize:])
		return nil
	}
	return w.fail(op, mpierr.ErrAborted, rank, "the rank has refused a %v request, or has sent what is no answer",
		r.Kind)
}

// began notes an operation whose request has been sent, and the message that has its elements; nil: there is none, or
// the caller has it.
func (w *Window) began(r *Remote, message *pml.Request) {
	w.mu.Lock()
	r.sent++
	if message != nil {
		r.pending = append(r.pending, message)
	}
	w.mu.Unlock()
}

// Put writes src at a rank. src is the window's until the next flush there.
func (w *Window) Put(op string, r *Remote, rank int, at int64, src []byte) error {
	m, err := w.put(op, rank, at, src)
	if err == nil {
		w.began(r, m)
	}
	return err
}

// StartPut is Put whose src is the window's until the request is done; nil: it is done.
func (w *Window) StartPut(op string, r *Remote, rank int, at int64, src []byte) (*pml.Request, error) {
	m, err := w.put(op, rank, at, src)
	if err == nil {
		w.began(r, nil)
	}
	return m, err
}

func (w *Window) put(op string, rank int, at int64, src []byte) (*pml.Request, error) {
	want := rma.Request{Kind: rma.Put, At: at, N: w.count(src)}
	if len(src) <= elementsMost {
		return nil, w.tellRequest(op, rank, &want, src)
	}
	want.Kind, want.Slot = rma.PutAlone, w.slot(tagElements)
	if err := w.tellRequest(op, rank, &want, nil); err != nil {
		return nil, err
	}
	return w.group.Engine.Isend(nil, w.messages(), w.group.ToWorld(rank), want.Slot, src, pml.Standard), nil
}

// Get reads elements of a rank into dst, which is the window's until the next flush there.
func (w *Window) Get(op string, r *Remote, rank int, at int64, dst []byte) error {
	m, err := w.get(op, rank, at, dst)
	if err == nil {
		w.began(r, m)
	}
	return err
}

// StartGet is Get whose dst is the window's until the request is done.
func (w *Window) StartGet(op string, r *Remote, rank int, at int64, dst []byte) (*pml.Request, error) {
	m, err := w.get(op, rank, at, dst)
	if err == nil {
		w.began(r, nil)
	}
	return m, err
}

func (w *Window) get(op string, rank int, at int64, dst []byte) (*pml.Request, error) {
	want := rma.Request{Kind: rma.Get, At: at, N: w.count(dst), Slot: w.slot(tagAnswers)}
	m := w.group.Engine.Irecv(nil, w.messages(), w.group.ToWorld(rank), want.Slot, dst)
	if err := w.tellRequest(op, rank, &want, nil); err != nil {
		m.Cancel()
		m.Wait()
		return nil, err
	}
	return m, nil
}

// Accumulate combines src with elements of a rank.
func (w *Window) Accumulate(call string, r *Remote, rank int, at int64, op uint8, src []byte) error {
	return w.pieces(len(src), func(from, to int) error {
		want := rma.Request{Kind: rma.Update, Op: op, At: at + w.count(src[:from]), N: w.count(src[from:to])}
		err := w.tellRequest(call, rank, &want, src[from:to])
		if err == nil {
			w.began(r, nil)
		}
		return err
	})
}

// Fetch is Accumulate that returns the elements as they were. src may be empty.
func (w *Window) Fetch(call string, rank int, at int64, op uint8, src, before []byte) error {
	return w.pieces(len(before), func(from, to int) error {
		want := rma.Request{Kind: rma.Fetch, Op: op, At: at + w.count(before[:from]), N: w.count(before[from:to])}
		var piece []byte
		if len(src) > 0 {
			piece = src[from:to]
		}
		return w.ask(call, rank, &want, piece, before[from:to])
	})
}

// Swap is rma.Swap, of two elements.
func (w *Window) Swap(call string, rank int, at int64, two, before []byte) error {
	return w.ask(call, rank, &rma.Request{Kind: rma.Swap, At: at, N: 1}, two, before)
}

func (w *Window) count(b []byte) int64 {
	if w.elem == 0 {
		return 0
	}
	return int64(len(b) / w.elem)
}

// pieces calls f with the ends of pieces of n bytes that fit a request.
func (w *Window) pieces(n int, f func(from, to int) error) error {
	most := elementsMost / max(1, w.elem) * max(1, w.elem)
	for from := 0; from < n; from += most {
		if err := f(from, min(n, from+most)); err != nil {
			return err
		}
	}
	return nil
}

// settle returns when the messages with elements at a rank are over: the callers' buffers are theirs again. r.flushing
// is held.
func (w *Window) settle(op string, rank int, r *Remote) (err error) {
	w.mu.Lock()
	pending := r.pending
	r.pending, r.spare = r.spare, nil
	w.mu.Unlock()
	for _, m := range pending {
		if _, failed := m.Wait(); failed != nil && err == nil {
			err = w.group.Wrap(op, rank, ranks.Undefined, failed)
		}
	}
	clear(pending)
	w.mu.Lock()
	r.spare = pending[:0]
	w.mu.Unlock()
	return err
}

// settled is settle for a caller that does not hold r.flushing.
func (w *Window) settled(op string, rank int) error {
	r := w.remote(rank)
	r.flushing.Lock()
	defer r.flushing.Unlock()
	return w.settle(op, rank, r)
}

// flush returns when the operations at a rank are complete there whose calls have returned.
func (w *Window) flush(op string, rank int) error {
	w.mu.Lock()
	r := w.far[rank]
	w.mu.Unlock()
	if r == nil {
		return nil
	}
	return w.complete(op, rank, r, rma.Flush)
}

// complete sends a Flush, unless there is nothing to flush, or an Unlock, and waits for the answer.
func (w *Window) complete(op string, rank int, r *Remote, kind rma.Kind) error {
	r.flushing.Lock()
	defer r.flushing.Unlock()
	w.mu.Lock()
	sent := r.sent
	w.mu.Unlock()
	if kind == rma.Flush && sent == r.flushed {
		return nil
	}
	err := errors.Join(w.settle(op, rank, r), w.ask(op, rank, &rma.Request{Kind: kind}, nil, nil))
	if !errors.Is(err, mpierr.ErrPeerFailed) { // else they never are, and each call says so
		r.flushed = sent
	}
	return err
}

// flushAll is flush of all ranks.
func (w *Window) flushAll(op string) error {
	return w.eachRemote(func(rank int, _ *Remote) error { return w.flush(op, rank) })
}

// eachRemote calls f with each rank that this one has asked for something, in no order. It returns the first error.
func (w *Window) eachRemote(f func(rank int, r *Remote) error) (err error) {
	w.mu.Lock()
	all := make([]int, 0, len(w.far))
	for rank := range w.far {
		all = append(all, rank)
	}
	w.mu.Unlock()
	for _, rank := range all {
		if failed := f(rank, w.remote(rank)); err == nil {
			err = failed
		}
	}
	return err
}

// askUnlock lets the lock of a rank go when the operations there are complete.
func (w *Window) askUnlock(op string, rank int) error {
	return w.complete(op, rank, w.remote(rank), rma.Unlock)
}
