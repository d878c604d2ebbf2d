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

	// Guarded by the window's mu.
	pending []*pml.Request // messages that carry elements of operations
	spare   []*pml.Request // empty: the memory of the next pending
	dirty   bool           // there have been operations since the last flush
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
		if err := w.ask(op, rank, &rma.Request{Kind: rma.Lock, Op: uint8(rma.Shared)}, nil, nil); err != nil {
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

// began notes an operation at a rank.
func (w *Window) began(r *Remote) {
	w.mu.Lock()
	r.dirty = true
	w.mu.Unlock()
}

// keep notes the message that has the elements of an operation; nil: there is none.
func (w *Window) keep(r *Remote, message *pml.Request) {
	if message == nil {
		return
	}
	w.mu.Lock()
	r.pending = append(r.pending, message)
	w.mu.Unlock()
}

// Put writes src at a rank. src is the window's until the next flush there.
func (w *Window) Put(op string, r *Remote, rank int, at int64, src []byte) error {
	m, err := w.StartPut(op, r, rank, at, src)
	w.keep(r, m)
	return err
}

// StartPut is Put whose src is the window's until the request is done; nil: it is done.
func (w *Window) StartPut(op string, r *Remote, rank int, at int64, src []byte) (*pml.Request, error) {
	want := rma.Request{Kind: rma.Put, At: at, N: w.count(src)}
	w.began(r)
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
	m, err := w.StartGet(op, r, rank, at, dst)
	w.keep(r, m)
	return err
}

// StartGet is Get whose dst is the window's until the request is done.
func (w *Window) StartGet(op string, r *Remote, rank int, at int64, dst []byte) (*pml.Request, error) {
	want := rma.Request{Kind: rma.Get, At: at, N: w.count(dst), Slot: w.slot(tagAnswers)}
	w.began(r)
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
	w.began(r)
	return w.pieces(len(src), func(from, to int) error {
		want := rma.Request{Kind: rma.Update, Op: op, At: at + w.count(src[:from]), N: w.count(src[from:to])}
		return w.tellRequest(call, rank, &want, src[from:to])
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

// settle returns when the messages with elements at a rank are over: the callers' buffers are theirs again.
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

// flush returns when the operations at a rank are complete there.
func (w *Window) flush(op string, rank int) error {
	w.mu.Lock()
	r := w.far[rank]
	if r == nil || !r.dirty {
		w.mu.Unlock()
		return nil
	}
	r.dirty = false
	w.mu.Unlock()
	return errors.Join(w.settle(op, rank, r), w.ask(op, rank, &rma.Request{Kind: rma.Flush}, nil, nil))
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
	w.mu.Lock()
	r := w.far[rank]
	if r != nil {
		r.dirty = false
	}
	w.mu.Unlock()
	var err error
	if r != nil {
		err = w.settle(op, rank, r)
	}
	return errors.Join(err, w.ask(op, rank, &rma.Request{Kind: rma.Unlock}, nil, nil))
}
