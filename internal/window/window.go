package window

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/gorun-mpi/mpi/internal/agree"
	"github.com/gorun-mpi/mpi/internal/coll"
	"github.com/gorun-mpi/mpi/internal/mpierr"
	"github.com/gorun-mpi/mpi/internal/ranks"
	"github.com/gorun-mpi/mpi/pml"
	"github.com/gorun-mpi/mpi/rma"
)

// Window is a window at one rank. Any goroutine may call its methods.
type Window struct {
	group *coll.Group // its own communicator: no other messages go on it
	board *pml.Board
	parts []part // by rank of the window

	// Open reports whether an operation at any rank is allowed and nothing is to be noted of it. It is false once the
	// window has been freed.
	Open atomic.Bool

	mu     sync.Mutex // guards what follows; no call waits while it holds it
	epochs rma.Epochs
	state  state

	waits   sync.Mutex  // held by the goroutine that waits at the board
	watched atomic.Bool // the ends of all members end waits at the board
}

// part is what a window has at one rank.
type part struct {
	mem   []byte // in the board
	count int64  // elements
}

type state uint8

const (
	inUse   state = iota
	freeing       // a Free is under way, or has failed
	freed
)

// Memory is that of a rank of the window, and how many elements it has.
func (w *Window) Memory(rank int) (mem []byte, count int64) {
	return w.parts[rank].mem, w.parts[rank].count
}

// Usable reports whether nobody has begun to free the window.
func (w *Window) Usable() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.state == inUse
}

// Size is the number of ranks.
func (w *Window) Size() int { return w.group.Size }

// fail is the error of a call that a rank of the window is named in; ranks.Undefined: none is.
func (w *Window) fail(op string, class error, rank int, err error) error {
	return &mpierr.Error{Op: op, Class: class, Comm: w.group.Name(), Peer: rank, Tag: ranks.Undefined, Err: err}
}

// change makes a step of the epochs, which rank is named in.
func (w *Window) change(op string, rank int, step func(*rma.Epochs) error) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.usable(op, rank); err != nil {
		return err
	}
	if err := step(&w.epochs); err != nil {
		return w.fail(op, mpierr.ErrEpoch, rank, err)
	}
	w.Open.Store(w.epochs.All())
	return nil
}

// usable reports why a call with that rank cannot be made. mu is held.
func (w *Window) usable(op string, rank int) error {
	if w.state != inUse {
		return mpierr.At(mpierr.On(mpierr.New(op, mpierr.ErrComm, "the window has been freed; use it before Free"),
			w.group.Name()), rank, ranks.Undefined, false)
	}
	if rank != ranks.Undefined && (rank < 0 || rank >= w.group.Size) {
		return mpierr.At(mpierr.On(mpierr.New(op, mpierr.ErrRank, "the window has ranks 0–%d", w.group.Size-1),
			w.group.Name()), rank, ranks.Undefined, false)
	}
	return nil
}

// Operation reports why an operation of n elements from element at on, at a rank, cannot be made, and notes it
// otherwise.
func (w *Window) Operation(op string, rank int, at int64, n int) error {
	err := w.change(op, rank, func(e *rma.Epochs) error { return e.Operation(int32(rank)) })
	if err != nil {
		return err
	}
	if has := w.parts[rank].count; at < 0 || at > has || int64(n) > has-at {
		return w.fail(op, mpierr.ErrRange, rank, fmt.Errorf("%d elements from element %d on; the window has %d elements there",
			n, at, has))
	}
	return nil
}

// messages is the context of the window's messages.
func (w *Window) messages() uint32 { return w.group.Context + agree.CtxMessages }

// The tags of the window's messages.
const (
	tagPost     = iota // an exposure epoch has begun
	tagComplete        // an access epoch is over
	tagNote            // of PutNotify: four bytes
)
