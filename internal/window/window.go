package window

import (
	"context"
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
//
// A window is mapped if all its ranks share a board that has the memory of all: then every operation is the caller's
// own, and the locks are words of the board. Otherwise ranks send requests to each other (serve.go, ask.go). Then the
// board, if there is one, has the memory of this host's ranks, which alone need no requests but for locks.
type Window struct {
	group  *coll.Group // its own communicator: no other messages go on it
	elem   int         // bytes of an element
	update Updater
	board  *pml.Board    // nil: this host's ranks share no memory
	mapped bool          // fixed when the window is made
	nic    bool          // devices make atomic steps where they can: see device.go; fixed likewise
	near   map[int]*part // the ranks of this host whose memory is mapped here, this one among them
	parts  []*part       // of all ranks, if the window is mapped
	own    *part         // this rank's
	served *served       // nil: the window is mapped, and takes none
	device *pml.Reach    // has the device make all atomic steps on this rank's memory; nil: the CPU makes them

	accel   *Accel   // of a window over device memory, whose ranks are all asked; nil: the memory is the host's
	regions *regions // of a dynamic window, whose part of this rank has no memory; nil: it is not dynamic

	// Open reports whether an operation at any rank is allowed and nothing is to be noted of it. It is false once the
	// window has been freed, and of a window that is not mapped.
	Open    atomic.Bool
	passive atomic.Bool // LockAll has opened the epoch of a window that is mapped: there is nothing to flush
	short   shortEpoch  // of Lock in mapped memory
	guards              // of the memory of near

	mu     sync.Mutex // guards what follows; no call waits while it holds it
	epochs rma.Epochs
	state  state
	far    map[int]*Remote // ranks that this one has asked for something
	early  []int32         // ranks whose Post has been heard by a Start that has failed
	late   int             // calls that go on after their callers' contexts have ended
	onTime chan struct{}   // is closed when late is 0; nil: Free does not wait
	fences chan struct{}   // is closed when the last Fence with a context is over; nil: there has been one without

	departed atomic.Bool  // all ranks have called Free
	waits    sync.Mutex   // held by the goroutine that waits at the board
	watched  atomic.Bool  // the ends of all members end waits at the board
	slots    atomic.Int32 // the number of the last tag
	lockSlot atomic.Int32 // likewise, of tagLocks
	barred   atomic.Bool  // nothing: see order
	scratch  sync.Pool    // *scratch
}

// Updater makes atomic steps on elements, whose type it knows.
type Updater interface {
	// Update combines src with dst, each element in one step, and has before, unless it is nil, be the elements as they
	// were. src may be empty: the operator does not use it. It reports false if there is no such operator. The error is
	// the Guard's.
	Update(op uint8, dst, src, before []byte, g Guard) (bool, error)
	// Adds reports whether an operator adds integers of 8 bytes.
	Adds(op uint8) bool
	// Swap sets the element dst to the second of two in src if it is the first, and has before be what it was. It
	// reports false if that is not for such elements.
	Swap(dst, src, before []byte, g Guard) (bool, error)
}

// part is what a window has at one rank. It is the memory of the rank's lock (rma.Memory), and its Guard.
type part struct {
	w     *Window
	rank  int
	mem   []byte
	count int64                       // elements
	place int                         // of the rank on the board
	lines int                         // of the board, before the lines of the rank
	words [linesOfRank]*atomic.Uint64 // of these lines
	guard
	given

	// access says why an operation of this rank is allowed here, if the window is mapped, other than that Open is set.
	access atomic.Uint32
}

// Values of part.access.
const (
	accessNone uint32 = iota
	accessStarted
	accessLocked
)

// Allowed reports whether an operation at a rank of a mapped window is allowed and nothing is to be noted of it.
func (w *Window) Allowed(rank int) bool {
	return w.Open.Load() || w.parts[rank].access.Load() != accessNone || w.short.isOf(rank)
}

type state uint8

const (
	inUse   state = iota
	freeing       // a Free is under way, or has failed
	freed
)

// Memory is that of a rank of the window, and how many elements it has. ok: it is mapped here.
func (w *Window) Memory(rank int) (mem []byte, count int64, ok bool) {
	if p := w.near[rank]; p != nil {
		return p.mem, p.count, true
	}
	return nil, 0, false
}

// Mapped reports whether the memory of all ranks is mapped.
func (w *Window) Mapped() bool { return w.mapped }

// Size is the number of ranks.
func (w *Window) Size() int { return w.group.Size }

// ElemSize returns how many bytes an element has.
func (w *Window) ElemSize() int { return w.elem }

// fail is the error of a call that a rank of the window is named in; ranks.Undefined: none is.
func (w *Window) fail(op string, class error, rank int, format string, args ...any) error {
	return mpierr.At(mpierr.On(mpierr.New(op, class, format, args...), w.group.Name()), rank, ranks.Undefined, false)
}

// change makes a step of the epochs, which rank is named in.
func (w *Window) change(op string, rank int, step func(*rma.Epochs) error) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.usable(op, rank); err != nil {
		return err
	}
	if err := step(&w.epochs); err != nil {
		return w.fail(op, mpierr.ErrEpoch, rank, "%w", err)
	}
	if w.mapped {
		set(&w.Open, w.epochs.All())
		set(&w.passive, w.epochs.LockedAll())
	}
	return nil
}

// set is b.Store(to) where that costs a locked instruction only if it changes something.
func set(b *atomic.Bool, to bool) {
	if b.Load() != to {
		b.Store(to)
	}
}

// locks are the ranks of which this one has the lock.
func (w *Window) locks() (all []int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch s := w.short.Load(); {
	case s == shortNone:
		return nil
	case s != 0:
		return []int{int(s>>shortRank) - 1}
	case w.mapped && w.epochs.LockedAll():
		for rank := range w.parts {
			all = append(all, rank)
		}
		return all
	}
	all = w.epochs.Locked()
	for rank, r := range w.far {
		if r.locked {
			all = append(all, rank)
		}
	}
	return all
}

// lockedRanks is pml.Handler's Locks.
func (w *Window) lockedRanks() []int32 {
	has := w.locks()
	all := make([]int32, len(has))
	for i, rank := range has {
		all[i] = int32(w.group.ToWorld(rank))
	}
	return all
}

// usable reports why a call with that rank cannot be made, and has the epochs be what they are. mu is held.
func (w *Window) usable(op string, rank int) error {
	w.takeOver()
	if w.state != inUse {
		return w.fail(op, mpierr.ErrComm, rank, "the window has been freed; use it before Free")
	}
	if rank == ranks.ProcNull {
		return w.fail(op, mpierr.ErrRank, rank, "ProcNull is for operations; name a rank of the window, 0–%d",
			w.group.Size-1)
	}
	if rank != ranks.Undefined && (rank < 0 || rank >= w.group.Size) {
		return w.fail(op, mpierr.ErrRank, rank, "the window has ranks 0–%d", w.group.Size-1)
	}
	return nil
}

// Operation reports why an operation of n elements from element at on, at a rank, cannot be made, and notes it
// otherwise. It returns the memory of these elements, or, if that is not mapped here, nil and the rank.
func (w *Window) Operation(ctx context.Context, op string, rank int, at int64, n int) ([]byte, *Remote, error) {
	mem, r, err := w.operation(ctx, op, rank, at, n)
	if mem != nil {
		r = nil
	}
	return mem, r, err
}

// AtomicOperation is Operation of atomic steps: where a device makes these, it returns the rank.
func (w *Window) AtomicOperation(ctx context.Context, op string, rank int, at int64, n int) ([]byte, *Remote, error) {
	mem, r, err := w.operation(ctx, op, rank, at, n)
	if mem != nil && !w.stepsByDevice(r) {
		return mem, nil, err
	}
	return nil, r, err
}

// operation is Operation that returns the rank also where the memory is mapped, unless the window is.
func (w *Window) operation(ctx context.Context, op string, rank int, at int64, n int) ([]byte, *Remote, error) {
	if uint(rank) >= uint(len(w.parts)) || !w.Allowed(rank) {
		if err := w.change(op, rank, func(e *rma.Epochs) error { return e.Operation(int32(rank)) }); err != nil {
			return nil, nil, err
		}
	}
	var r *Remote
	if !w.mapped {
		var err error
		if r, err = w.reachWithin(ctx, op, rank); err != nil {
			return nil, nil, err
		}
	}
	if w.regions != nil {
		return w.anywhere(op, r, rank, at, n)
	}
	p := w.near[rank]
	count := int64(0)
	if p != nil {
		count = p.count
	} else {
		count = r.count
	}
	if !rma.Within(at, int64(n), count, w.elem) {
		return nil, nil, w.fail(op, mpierr.ErrRange, rank, "%s from element %d on; the window has %s there",
			elements(int64(n)), at, elements(count))
	}
	if p != nil {
		return p.mem[int(at)*w.elem:][:n*w.elem], r, nil
	}
	return nil, r, nil
}

func elements(n int64) string {
	if n == 1 {
		return "1 element"
	}
	return fmt.Sprintf("%d elements", n)
}

// messages is the context of the window's messages.
func (w *Window) messages() uint32 { return w.group.Context + agree.CtxMessages }

// The tags of the window's messages.
const (
	tagPost     = iota // an exposure epoch has begun
	tagComplete        // an access epoch is over
	tagNote            // of PutNotify: four bytes
	tagRequest         // rma.Request
	tagAnswers  = 1 << 28
	tagElements = 2 << 28 // of rma.PutAlone
	tagLocks    = 3 << 28 // the answers to rma.Lock, which others to the same rank may overtake, any number of them
	tagsEach    = 1 << 28 // of the last three
)

const (
	// requestMost is the longest request, and elementsMost how many bytes of elements go in one, and in an answer. What
	// is longer is a message of its own, or several requests.
	requestMost  = 8 << 10
	elementsMost = requestMost - rma.RequestSize
)
