package mpi

import (
	"context"
	"errors"
	"fmt"
	"math"
	"reflect"
	"sync"
	"sync/atomic"

	"github.com/gorun-mpi/mpi/internal/agree"
	"github.com/gorun-mpi/mpi/internal/mpierr"
	"github.com/gorun-mpi/mpi/internal/ranks"
	"github.com/gorun-mpi/mpi/internal/reduce"
	"github.com/gorun-mpi/mpi/internal/window"
	"github.com/gorun-mpi/mpi/pml"
	"github.com/gorun-mpi/mpi/rma"
)

// Win is a window: elements of each rank of a communicator that all its ranks read, write and update; §12. An operation
// names a rank, and the element at that rank where it begins. Operations are allowed in epochs, which Fence, Start,
// Lock and LockAll open; ErrEpoch otherwise. A buffer of an operation is the library's until the epoch ends, or Flush
// or FlushLocal returns. Operations with ProcNull do nothing; Lock, Unlock and Flush need a rank (§12.5.3), and
// ProcNull is ErrRank. Every goroutine may call the methods. An epoch is the rank's and not a goroutine's: goroutines
// that share a window use one LockAll, and not each a Lock of the same rank.
//
// A Put or Accumulate is at its rank when a call that completes it has returned: Flush, or the end of the epoch. Before
// that it may not have left this rank, and a Send or a Barrier behind it tells the other rank nothing (§12.5). Memory
// that ranks of one host map forgives a Flush that is missing: run a program with GORUN_TRANSPORTS=tcp too.
//
// A Put of a rank's own elements into others that overlap them, or a Get, is for the caller to avoid (§12.3).
//
// Memory that is not there is ErrRange; a rank that is not there ErrRank; a call after Free ErrComm.
type Win[T any] struct {
	*winState[T]
	ctx    context.Context // nil: calls are not ended by a context
	hooked *hookedWin[T]   // not nil: this stands for another one, and has no state
}

// winState is what all Wins of a window share.
type winState[T any] struct {
	comm  *Comm // of its own
	win   *window.Window
	parts [][]T                   // of each rank; nil: not all of them are mapped
	ops   atomic.Pointer[[]winOp] // this package's operators that it has been called with; nil: none
	pairs sync.Pool               // *[4]T: elements of an operation
	group atomic.Pointer[winGroup]
}

// winGroup is the group that Start or Post was called with last: programs use one again and again.
type winGroup struct {
	of    *Group
	ranks []int32 // of the window; they do not change
}

// WinOption is an option of WinAlloc, WinCreate and WinShared.
type WinOption uint8

const (
	// WinContiguous makes the memory of all ranks one array, in the order of ranks; §12.2.3 (alloc_shared_noncontig).
	// Without it the memory of each rank begins at a line of the cache or a page of its own.
	WinContiguous WinOption = iota + 1
	// NICAtomics asks that RDMA devices make the atomic steps: FetchOp, CompareAndSwap and Accumulate. A FetchOp or
	// CompareAndSwap on another host needs nothing of that host's CPUs then; on one's own it takes longer. The
	// elements are integers of 8 bytes. Where a rank's device cannot do it, and where all ranks map the memory, CPUs
	// make the steps as without the option. All steps are atomic with respect to each other in any case.
	NICAtomics
)

// LockMode is the kind of a lock; §12.5.3.
type LockMode = rma.Mode

// Locks: several ranks have a Shared lock of a rank at a time, and one has an Exclusive lock.
const (
	Shared    = rma.Shared
	Exclusive = rma.Exclusive
)

// WinAlloc makes a window with n elements of this rank, which are zero; §12.2.2 (MPI_Win_allocate). Every rank of c
// calls it, each with an n of its own. Free ends the memory. Ranks of one host map each other's memory, and an
// operation there is a load or a store; other ranks do what they are asked by messages, also while they compute. Errors
// are those of Dup; ErrType; ErrCount for an n that cannot be; ErrNoMemory.
func WinAlloc[T any](c *Comm, n int, options ...WinOption) (*Win[T], error) {
	return winOf[T](c, agree.MakeWinAlloc, n, nil, options)
}

// WinCreate makes a window of memory that the caller has, a slice of Alloc or any other; §12.2.1. The memory is the
// window's until Free. Where it can choose, a program takes WinAlloc, whose memory other ranks map.
func WinCreate[T any](c *Comm, mem []T, options ...WinOption) (*Win[T], error) {
	if mem == nil {
		mem = []T{}
	}
	return winOf(c, agree.MakeWinCreate, len(mem), mem, options)
}

// WinShared is WinAlloc for ranks of one host, which read and write the memory of other ranks in place: see Of; §12.2.3
// (MPI_Win_allocate_shared). Ranks on several hosts are ErrUnavailable: SplitShared makes a communicator for each host.
func WinShared[T any](c *Comm, n int, options ...WinOption) (*Win[T], error) {
	return winOf[T](c, agree.MakeWinShared, n, nil, options)
}

func winOf[T any](c *Comm, kind agree.Creation, n int, mem []T, options []WinOption) (*Win[T], error) {
	op := kind.String()
	if h := c.hook(); h != nil {
		return makesWin(h, op, n, func(c *Comm) (*Win[T], error) { return winOf(c, kind, n, mem, options) })
	}
	if err := c.intra(op); err != nil {
		return nil, err
	}
	var bad *Error
	size := sizeOf[T]()
	if err := fixedType[T](); err != nil {
		bad = c.badElement(op, err)
	} else if n < 0 {
		bad = c.opError(op, ErrCount, "%d elements were asked for; a rank has 0 or more", n)
	} else if size > 0 && n > math.MaxInt64/2/size {
		bad = c.opError(op, ErrCount, "%d elements of %d bytes were asked for; a rank has at most 2^62 bytes", n, size)
	}
	spec := window.Spec{Kind: kind, Count: int64(n), Elem: size, Shared: kind == agree.MakeWinShared,
		Update: updater[T]{}}
	if mem != nil {
		spec.Own = bytesOf(mem)
	}
	for _, o := range options {
		var no *Error
		switch {
		case o == WinContiguous && mem == nil:
			spec.Contiguous = true
		case o == WinContiguous:
			no = c.opError(op, ErrUnavailable, "the memory is the caller's; WinContiguous is for WinAlloc and WinShared")
		case o != NICAtomics:
			no = c.opError(op, ErrUnavailable, "there is no option %d; use WinContiguous or NICAtomics", o)
		case reduce.AtomicKind[T]() == reflect.Invalid || !(updater[T]{}).Adds(uint8(reduce.AtomicSum)):
			no = c.opError(op, ErrType, "the elements are %v; with NICAtomics they must be integers of 8 bytes",
				reflect.TypeFor[T]())
		default:
			spec.NIC = true
		}
		if bad == nil {
			bad = no
		}
	}
	like := fmt.Sprint(reflect.TypeFor[T](), size, spec.Contiguous, spec.NIC)
	made, err := c.create(plan{kind: kind, args: []byte(like), bad: bad,
		members: func() *ranks.Set { return c.group.Members() },
		finish:  func(s *commState) { c.group.Duplicate(&s.group) },
		after: func(m *agree.Exchange, made *Comm) (no *agree.Veto) {
			made.win, no = window.Make(m, &made.group, spec)
			return no
		}})
	if err != nil {
		return nil, err
	}
	s := &winState[T]{comm: made, win: made.win, pairs: sync.Pool{New: func() any { return new([4]T) }}}
	if made.win.Mapped() {
		for rank := range made.win.Size() {
			s.parts = append(s.parts, s.of(rank))
		}
	}
	return &Win[T]{winState: s, ctx: c.ctx}, nil
}

// badElement is the error of a call whose elements cannot be in a window.
func (c *Comm) badElement(op string, err error) *Error {
	var pointer *pointerError
	if errors.As(err, &pointer) {
		return c.opError(op, ErrType, "%s; use numbers, or arrays and structs of them", pointer.what)
	}
	return c.opError(op, ErrType, "%w", err)
}

// WithContext returns a Win for the same window whose calls, and the waits for their requests, return ctx's error when
// ctx ends. What a call has asked other ranks is done all the same: its buffers are the library's until a Flush there,
// or the end of the epoch, returns without an error. Post begins its epoch in any case, and Fence, Complete, Unlock,
// UnlockAll and Free end theirs; they do the rest in the background.
func (w *Win[T]) WithContext(ctx context.Context) *Win[T] {
	if w == nil {
		return nil
	}
	if ctx != nil && ctx.Done() == nil {
		ctx = nil
	}
	if h := w.hooked; h != nil {
		return standWin(h.at.hookState, h.plain.WithContext(ctx))
	}
	return &Win[T]{winState: w.winState, ctx: ctx}
}

// valid reports that w is no window.
func (w *Win[T]) valid(call string) error {
	if w == nil || w.winState == nil {
		return w.missing(call)
	}
	return nil
}

// missing is why a call on w, which has no state, cannot be made.
func (w *Win[T]) missing(call string) error {
	if w != nil && w.hooked != nil {
		return errHooked
	}
	return mpierr.New(call, ErrComm,
		"the window is nil; use what WinAlloc or another call beginning with Win has returned")
}

// Local returns the elements of this rank, and nil after Free.
func (w *Win[T]) Local() []T {
	if w = w.withoutHooks(); w.valid("Local") != nil {
		return nil
	}
	return w.Of(w.comm.group.Rank)
}

// Of returns the elements of a rank, in place, or nil: they are not mapped here, or the window has been freed;
// §12.2.3 (MPI_Win_shared_query). Ranks that read what others write order their accesses by the calls that open and end
// epochs, or by atomic operations of their own.
func (w *Win[T]) Of(rank int) []T {
	if w = w.withoutHooks(); w.valid("Of") != nil || w.comm.ended.Load()&isFreed != 0 {
		return nil
	}
	return w.of(rank)
}

func (w *winState[T]) of(rank int) []T {
	mem, count, _ := w.win.Memory(rank)
	return sliceOf[T](mem, int(count))
}

// Group returns the ranks of the window; §12.2.6.
func (w *Win[T]) Group() *Group {
	if w = w.withoutHooks(); w.valid("Group") != nil {
		return nil
	}
	return w.comm.Group()
}

// Name returns the name of the window in errors; §7.8.
func (w *Win[T]) Name() string {
	if w = w.withoutHooks(); w.valid("Name") != nil {
		return ""
	}
	return w.comm.Name()
}

// SetName names the window at this rank; §7.8.
func (w *Win[T]) SetName(name string) error {
	w = w.withoutHooks()
	if err := w.valid("SetName"); err != nil {
		return err
	}
	return w.comm.SetName(name)
}

// Free ends the window; §12.2.5. Every rank calls it, outside all epochs but those of Fence. It returns when no rank
// makes an operation any more. Slices of Local and Of are invalid afterwards: an access to mapped memory ends the
// program. After the failure of a rank of the window, Free ends the calls of the others with ErrRevoked, unless all are
// on one host.
func (w *Win[T]) Free() error {
	if err := w.valid("Free"); err != nil {
		return w.observed(err, "Free", CallCreate, Undefined, 0, func(w *Win[T]) error { return w.Free() })
	}
	first, err := w.win.Free(w.ctx)
	if first {
		w.comm.free()
	}
	return err
}

// there returns n elements from element at on, where they can be used as they are, and nothing is to be noted.
func (w *Win[T]) there(rank int, at int64, n int) (elements []T, ok bool) {
	if w == nil || w.winState == nil || uint(rank) >= uint(len(w.parts)) || !w.win.Allowed(rank) {
		return nil, false
	}
	p := w.parts[rank]
	if uint64(at) > uint64(len(p)) || n > len(p)-int(at) {
		return nil, false
	}
	return p[at:][:n], true
}

// movePiece is how many bytes are copied at a time: Go copies 1 MiB and more past the caches, which takes 3 to 6 times
// as long where the caches have the memory.
const movePiece = 256 << 10

// move is copy between slices of one length.
func move[T any](dst, src []T) {
	if len(src)*sizeOf[T]() >= window.CopyLeast && window.CopyLong(bytesOf(dst), bytesOf(src)) {
		return
	}
	for n := movePiece / max(1, sizeOf[T]()); n > 0 && len(src) > n; {
		copy(dst, src[:n])
		dst, src = dst[n:], src[n:]
	}
	copy(dst, src)
}

// Put writes src to a rank's elements from element at on; §12.3.1. They are there when the epoch ends or Flush returns,
// and perhaps not before.
func (w *Win[T]) Put(src []T, rank int, at int64) error {
	if dst, ok := w.there(rank, at, len(src)); ok {
		move(dst, src)
		return nil
	}
	return w.put("Put", src, rank, at)
}

func (w *Win[T]) put(call string, src []T, rank int, at int64) error {
	if err := w.valid(call); err != nil || rank == ProcNull {
		return w.observed(err, call, CallPut, rank, len(src), func(w *Win[T]) error { return w.Put(src, rank, at) })
	}
	mem, far, err := w.win.Operation(w.ctx, call, rank, at, len(src))
	switch {
	case err != nil:
		return err
	case far != nil:
		return w.win.Put(w.ctx, call, far, rank, at, bytesOf(src))
	}
	move(mem, bytesOf(src))
	return nil
}

// RPut is Put with a request, which is done when src can be used again; §12.3.5. The epoch's end and Flush complete the
// operation at the rank. They and FlushLocal complete it here too, and the request must be waited for all the same.
func (w *Win[T]) RPut(src []T, rank int, at int64) (*Request, error) {
	if err := w.valid("RPut"); err != nil {
		return w.begun(err, "RPut", CallPut, rank, len(src), func(w *Win[T]) (*Request, error) {
			return w.RPut(src, rank, at)
		})
	}
	return w.started(opRPut, rank, at, len(src), func(mem []byte, far *window.Remote) (r *pml.Request, err error) {
		if far != nil {
			return w.win.StartPut(w.ctx, "RPut", far, rank, at, bytesOf(src))
		}
		move(mem, bytesOf(src))
		return nil, nil
	})
}

// RGet is Get with a request, which is done when dst has the elements; §12.3.5.
func (w *Win[T]) RGet(dst []T, rank int, at int64) (*Request, error) {
	if err := w.valid("RGet"); err != nil {
		return w.begun(err, "RGet", CallGet, rank, len(dst), func(w *Win[T]) (*Request, error) {
			return w.RGet(dst, rank, at)
		})
	}
	return w.started(opRGet, rank, at, len(dst), func(mem []byte, far *window.Remote) (r *pml.Request, err error) {
		if far != nil {
			return w.win.StartGet(w.ctx, "RGet", far, rank, at, bytesOf(dst))
		}
		move(bytesOf(dst), mem)
		return nil, nil
	})
}

// started makes the request of an operation that start begins: at memory that is mapped here, or at a rank that is
// asked. Without a request of the engine's it is done.
func (w *Win[T]) started(op opCode, rank int, at int64, n int,
	start func(mem []byte, far *window.Remote) (*pml.Request, error)) (*Request, error) {
	var r *pml.Request
	if rank != ProcNull {
		mem, far, err := w.win.Operation(w.ctx, op.String(), rank, at, n)
		if err == nil {
			r, err = start(mem, far)
		}
		if err != nil {
			return nil, err
		}
	}
	return w.requested(op, rank, r, nil)
}

// requested returns the caller's request of an operation that has begun; r is nil if it is over, and err is why it has
// not begun.
func (w *Win[T]) requested(op opCode, rank int, r *pml.Request, err error) (*Request, error) {
	if err != nil {
		return nil, err
	}
	if r == nil {
		r = w.comm.group.Engine.Completed(pml.Status{})
	}
	q := w.comm.request(op, rank, Undefined, r)
	q.null = rank == ProcNull
	return q, nil
}

// Get reads a rank's elements from element at on into dst, which has them when the epoch ends or Flush or FlushLocal
// returns; §12.3.2.
func (w *Win[T]) Get(dst []T, rank int, at int64) error {
	if src, ok := w.there(rank, at, len(dst)); ok {
		move(dst, src)
		return nil
	}
	return w.get("Get", dst, rank, at)
}

func (w *Win[T]) get(call string, dst []T, rank int, at int64) error {
	if err := w.valid(call); err != nil || rank == ProcNull {
		return w.observed(err, call, CallGet, rank, len(dst), func(w *Win[T]) error { return w.Get(dst, rank, at) })
	}
	mem, far, err := w.win.Operation(w.ctx, call, rank, at, len(dst))
	switch {
	case err != nil:
		return err
	case far != nil:
		return w.win.Get(w.ctx, call, far, rank, at, bytesOf(dst))
	}
	move(bytesOf(dst), mem)
	return nil
}

// Fence ends the epoch of the Fence before, with the operations of all ranks, and begins another one; §12.5.1. Every
// rank calls it.
func (w *Win[T]) Fence() error {
	if err := w.valid("Fence"); err != nil {
		return w.observed(err, "Fence", CallSync, Undefined, 0, func(w *Win[T]) error { return w.Fence() })
	}
	return w.win.Fence(w.ctx)
}

// Start begins an epoch for operations at the ranks of g, each of which calls Post with a group that has this rank;
// §12.5.2. Start returns when they have.
func (w *Win[T]) Start(g *Group) error {
	if err := w.valid("Start"); err != nil {
		return w.observed(err, "Start", CallSync, Undefined, 0, func(w *Win[T]) error { return w.Start(g) })
	}
	return w.withGroup("Start", g, w.win.Start)
}

// Complete ends the epoch of Start, with its operations.
func (w *Win[T]) Complete() error {
	if err := w.valid("Complete"); err != nil {
		return w.observed(err, "Complete", CallSync, Undefined, 0, func(w *Win[T]) error { return w.Complete() })
	}
	return w.win.Complete(w.ctx)
}

// Post begins an epoch for operations of the ranks of g at this rank; §12.5.2.
func (w *Win[T]) Post(g *Group) error {
	if err := w.valid("Post"); err != nil {
		return w.observed(err, "Post", CallSync, Undefined, 0, func(w *Win[T]) error { return w.Post(g) })
	}
	return w.withGroup("Post", g, w.win.Post)
}

// Wait ends the epoch of Post when all ranks of its group have called Complete.
func (w *Win[T]) Wait() error {
	if err := w.valid("Wait"); err != nil {
		return w.observed(err, "Wait", CallSync, Undefined, 0, func(w *Win[T]) error { return w.Wait() })
	}
	return w.win.Wait(w.ctx)
}

// Test is Wait that does not wait. It reports whether it has ended the epoch.
func (w *Win[T]) Test() (bool, error) {
	if err := w.valid("Test"); err != nil {
		over := false
		err = w.observed(err, "Test", CallSync, Undefined, 0, func(w *Win[T]) (err error) {
			over, err = w.Test()
			return err
		})
		return over, err
	}
	return w.win.Test()
}

func (w *Win[T]) withGroup(op string, g *Group, f func(context.Context, []int32) error) error {
	last := w.group.Load()
	if last == nil || last.of != g || g == nil {
		if err := w.comm.part(op, g); err != nil {
			return err
		}
		last = &winGroup{of: g}
		g.ranks.All(func(world int32) bool {
			last.ranks = append(last.ranks, int32(w.comm.group.RankOf(world)))
			return true
		})
		w.group.Store(last)
	}
	return f(w.ctx, last.ranks)
}

// Lock begins an epoch for operations at a rank, when this rank has its lock; §12.5.3. Ranks get a lock in the order in
// which they ask. If the context ends first, Lock returns its error, and the lock is let go when it comes.
func (w *Win[T]) Lock(rank int, mode LockMode) error {
	if err := w.valid("Lock"); err != nil {
		return w.observed(err, "Lock", CallSync, rank, 0, func(w *Win[T]) error { return w.Lock(rank, mode) })
	}
	return w.win.Lock(w.ctx, "Lock", rank, mode)
}

// Unlock ends the epoch of Lock at a rank, with its operations.
func (w *Win[T]) Unlock(rank int) error {
	if err := w.valid("Unlock"); err != nil {
		return w.observed(err, "Unlock", CallSync, rank, 0, func(w *Win[T]) error { return w.Unlock(rank) })
	}
	return w.win.Unlock(w.ctx, rank)
}

// LockAll begins an epoch for operations at all ranks, with a Shared lock of each; §12.5.3. Not every rank need call
// it.
func (w *Win[T]) LockAll() error {
	if err := w.valid("LockAll"); err != nil {
		return w.observed(err, "LockAll", CallSync, Undefined, 0, func(w *Win[T]) error { return w.LockAll() })
	}
	return w.win.LockAll(w.ctx)
}

// UnlockAll ends the epoch of LockAll, with its operations.
func (w *Win[T]) UnlockAll() error {
	if err := w.valid("UnlockAll"); err != nil {
		return w.observed(err, "UnlockAll", CallSync, Undefined, 0, func(w *Win[T]) error { return w.UnlockAll() })
	}
	return w.win.UnlockAll(w.ctx)
}

// Flush returns when this rank's operations at a rank are complete there, in an epoch of Lock or LockAll; §12.5.4.
func (w *Win[T]) Flush(rank int) error {
	if err := w.valid("Flush"); err != nil {
		return w.observed(err, "Flush", CallSync, rank, 0, func(w *Win[T]) error { return w.Flush(rank) })
	}
	return w.win.Flush(w.ctx, "Flush", rank)
}

// FlushAll is Flush of all ranks.
func (w *Win[T]) FlushAll() error {
	if err := w.valid("FlushAll"); err != nil {
		return w.observed(err, "FlushAll", CallSync, Undefined, 0, func(w *Win[T]) error { return w.FlushAll() })
	}
	return w.win.FlushAll(w.ctx, "FlushAll")
}

// FlushLocal returns when the buffers of this rank's operations at a rank can be used again; §12.5.4.
func (w *Win[T]) FlushLocal(rank int) error {
	if err := w.valid("FlushLocal"); err != nil {
		return w.observed(err, "FlushLocal", CallSync, rank, 0, func(w *Win[T]) error { return w.FlushLocal(rank) })
	}
	return w.win.FlushLocal(w.ctx, "FlushLocal", rank)
}

// FlushLocalAll is FlushLocal of all ranks.
func (w *Win[T]) FlushLocalAll() error {
	if err := w.valid("FlushLocalAll"); err != nil {
		return w.observed(err, "FlushLocalAll", CallSync, Undefined, 0, func(w *Win[T]) error { return w.FlushLocalAll() })
	}
	return w.win.FlushLocalAll(w.ctx, "FlushLocalAll")
}

// Sync orders this rank's loads and stores of the window's memory; §12.5.4.
func (w *Win[T]) Sync() error {
	if err := w.valid("Sync"); err != nil {
		return w.observed(err, "Sync", CallSync, Undefined, 0, func(w *Win[T]) error { return w.Sync() })
	}
	return w.win.Sync()
}
