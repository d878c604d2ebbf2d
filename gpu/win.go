package gpu

import (
	"context"
	"errors"
	"reflect"

	"github.com/gorun-mpi/mpi"
	"github.com/gorun-mpi/mpi/accel"
	"github.com/gorun-mpi/mpi/internal/door"
	"github.com/gorun-mpi/mpi/internal/mpierr"
)

// Win is a window over device memory: elements of each rank of a communicator that all its ranks write and read, as a
// [mpi.Win]. Operations are allowed in the same epochs, with the same errors; the rank that owns the memory has no part
// in them, and may compute meanwhile. A buffer of an operation, of the host or of a device, is the library's until the
// epoch ends, or Flush or FlushLocal returns. There is no Accumulate, FetchOp or CompareAndSwap on device memory.
//
// An operation at a rank of this host is one copy by the device, if the rank's memory can be mapped here. Other
// operations are messages, which the library of the rank receives into the device.
//
// Every goroutine may call the methods.
type Win[T any] struct {
	*winState[T]
	sync *mpi.Win[struct{}] // has the epochs
}

// winState is what all Wins of a window share.
type winState[T any] struct {
	paths paths
	own   Slice[T]
}

// WinCreate makes a window over s, which is the window's until Free: its memory must not be freed before. Every rank of
// c calls it, each with a slice of its own, of any length; the zero Slice is no elements. The window waits for no
// stream of s: work on the memory has ended when an epoch begins.
//
// Errors are those of [mpi.WinCreate], and: mpi.ErrBuffer, mpi.ErrCount or mpi.ErrDevice for a slice that cannot be
// used; mpi.ErrDevice if the driver cannot prepare the memory.
func WinCreate[T any](c *mpi.Comm, s Slice[T]) (*Win[T], error) {
	const op = "gpu.WinCreate"
	b, wrong := s.buffer()
	b.Ordered = false
	w := &winState[T]{own: s}
	w.paths.elem, w.paths.released = int64(reflect.TypeFor[T]().Size()), make(chan struct{})
	if wrong == nil {
		wrong = w.paths.expose(s.of, b)
	}
	var bad error
	if wrong != nil {
		bad, b = mpierr.On(mpierr.New(op, wrong.Class, "%w", wrong.Err), c.Name()), accel.Buffer{}
	}
	sync, told, err := door.Through().WinCreate(c, door.WinSpec{Type: reflect.TypeFor[T](), Count: s.n, Mem: b,
		Tell: w.paths.tell(c), Quiesce: w.paths.quiesce, Release: w.paths.release}, bad)
	if err != nil {
		return nil, named(err, op)
	}
	w.paths.hear(c, told)
	return &Win[T]{winState: w, sync: sync.(*mpi.Win[struct{}])}, nil
}

// valid reports that w is no window.
func (w *Win[T]) valid(op string) error {
	if w == nil || w.winState == nil {
		return mpierr.New(op, mpi.ErrComm, "the window is nil; use what WinCreate has returned")
	}
	return nil
}

// WithContext returns a Win for the same window whose calls return ctx's error when ctx ends: see
// [mpi.Win.WithContext]. A copy that the device makes is waited for all the same.
func (w *Win[T]) WithContext(ctx context.Context) *Win[T] {
	if w.valid("") != nil {
		return nil
	}
	return &Win[T]{w.winState, w.sync.WithContext(ctx)}
}

// Local returns the elements of this rank.
func (w *Win[T]) Local() Slice[T] {
	if w.valid("") != nil {
		return Slice[T]{}
	}
	return w.own
}

// Group returns the ranks of the window.
func (w *Win[T]) Group() *mpi.Group {
	if w.valid("") != nil {
		return nil
	}
	return w.sync.Group()
}

// Name returns the name of the window in errors.
func (w *Win[T]) Name() string {
	if w.valid("") != nil {
		return ""
	}
	return w.sync.Name()
}

// SetName names the window at this rank.
func (w *Win[T]) SetName(name string) error {
	return w.call("gpu.SetName", func() error { return w.sync.SetName(name) })
}

// Free ends the window. Every rank calls it, outside all epochs but the ones of Fence. The memory is the caller's again
// then. After an error, which may be the end of a context or the failure of a rank, messages may touch the memory for
// some time: [Slice.Free] is mpi.ErrBuffer as long as they may. It waits for copies of other ranks of this process,
// whose later operations at this rank are mpi.ErrPeerFailed.
func (w *Win[T]) Free() error {
	if err := w.valid("gpu.Free"); err != nil {
		return err
	}
	err := w.sync.Free()
	if err == nil {
		<-w.paths.released
	}
	return named(err, "gpu.Free")
}

// Buffer is what Put and Get take: elements in memory of the host, or of a device.
type Buffer[T any] interface{ []T | Slice[T] }

// Put writes src to a rank's elements from element at on. It is no method of Win, since a method cannot take both kinds
// of Buffer.
func Put[T any, B Buffer[T]](w *Win[T], src B, rank int, at int64) error {
	return transfer(w, "gpu.Put", src, rank, at, true)
}

// Get reads a rank's elements from element at on into dst, which has them when the epoch ends or Flush or FlushLocal
// returns.
func Get[T any, B Buffer[T]](w *Win[T], dst B, rank int, at int64) error {
	return transfer(w, "gpu.Get", dst, rank, at, false)
}

func transfer[T any, B Buffer[T]](w *Win[T], op string, buf B, rank int, at int64, put bool) error {
	if err := w.valid(op); err != nil {
		return err
	}
	switch s := any(buf).(type) {
	case []T:
		return w.move(op, rank, at, len(s), operation{put: put, host: bytesOf(s)})
	case Slice[T]:
		b, bad := s.buffer()
		if bad != nil {
			return w.failed(op, rank, !put, bad)
		}
		return w.move(op, rank, at, s.n, operation{put: put, device: b, of: s.of})
	}
	panic("gpu: a Buffer is of one of two types")
}

// move makes an operation with n elements: as copies of a device of this rank, or by asking the rank.
func (w *Win[T]) move(op string, rank int, at int64, n int, o operation) error {
	if rank == mpi.ProcNull {
		return nil
	}
	through := door.Through()
	if m := w.paths.reach(rank, &o); m.ok {
		if err := through.WinCheck(w.sync, op, rank, at, n); err != nil || n == 0 {
			return err
		}
		if made, err := w.paths.make(&o, m, rank, at); err != nil {
			return w.failed(op, rank, !o.put, err)
		} else if made {
			return nil
		}
	}
	if o.put {
		return through.WinPut(w.sync, op, rank, at, n, o.host, o.device)
	}
	return through.WinGet(w.sync, op, rank, at, n, o.host, o.device)
}

// failed is the error of a call that names a rank; err is of this package, or of a driver.
func (w *Win[T]) failed(op string, rank int, source bool, err error) error {
	e, ours := err.(*mpi.Error)
	if ours {
		e = mpierr.New(op, e.Class, "%w", e.Err)
	} else {
		e = driverError(op, err)
	}
	return mpierr.At(mpierr.On(e, w.Name()), rank, mpi.Undefined, source)
}

// Fence ends the epoch of the Fence before, with the operations of all ranks, and begins another one. Every rank calls
// it.
func (w *Win[T]) Fence() error {
	return w.settled("gpu.Fence", allRanks, func() error { return w.sync.Fence() })
}

// Start begins an epoch for operations at the ranks of g, each of which calls Post with a group that has this rank.
func (w *Win[T]) Start(g *mpi.Group) error {
	return w.call("gpu.Start", func() error { return w.sync.Start(g) })
}

// Complete ends the epoch of Start, with its operations.
func (w *Win[T]) Complete() error {
	return w.settled("gpu.Complete", allRanks, func() error { return w.sync.Complete() })
}

// Post begins an epoch for operations of the ranks of g at this rank.
func (w *Win[T]) Post(g *mpi.Group) error {
	return w.call("gpu.Post", func() error { return w.sync.Post(g) })
}

// Wait ends the epoch of Post when all ranks of its group have called Complete.
func (w *Win[T]) Wait() error {
	return w.call("gpu.Wait", func() error { return w.sync.Wait() })
}

// Test is Wait that does not wait. It reports whether it has ended the epoch.
func (w *Win[T]) Test() (bool, error) {
	if err := w.valid("gpu.Test"); err != nil {
		return false, err
	}
	over, err := w.sync.Test()
	return over, named(err, "gpu.Test")
}

// Lock begins an epoch for operations at a rank, when this rank has its lock: see [mpi.Win.Lock].
func (w *Win[T]) Lock(rank int, mode mpi.LockMode) error {
	return w.call("gpu.Lock", func() error { return w.sync.Lock(rank, mode) })
}

// Unlock ends the epoch of Lock at a rank, with its operations.
func (w *Win[T]) Unlock(rank int) error {
	return w.settled("gpu.Unlock", rank, func() error { return w.sync.Unlock(rank) })
}

// LockAll begins an epoch for operations at all ranks, with a Shared lock of each.
func (w *Win[T]) LockAll() error {
	return w.call("gpu.LockAll", func() error { return w.sync.LockAll() })
}

// UnlockAll ends the epoch of LockAll, with its operations.
func (w *Win[T]) UnlockAll() error {
	return w.settled("gpu.UnlockAll", allRanks, func() error { return w.sync.UnlockAll() })
}

// Flush returns when this rank's operations at a rank are complete there, in an epoch of Lock or LockAll.
func (w *Win[T]) Flush(rank int) error {
	return w.settled("gpu.Flush", rank, func() error { return w.sync.Flush(rank) })
}

// FlushAll is Flush of all ranks.
func (w *Win[T]) FlushAll() error {
	return w.settled("gpu.FlushAll", allRanks, func() error { return w.sync.FlushAll() })
}

// FlushLocal returns when the buffers of this rank's operations at a rank can be used again.
func (w *Win[T]) FlushLocal(rank int) error {
	return w.settled("gpu.FlushLocal", rank, func() error { return w.sync.FlushLocal(rank) })
}

// FlushLocalAll is FlushLocal of all ranks.
func (w *Win[T]) FlushLocalAll() error {
	return w.settled("gpu.FlushLocalAll", allRanks, func() error { return w.sync.FlushLocalAll() })
}

// Sync orders this rank's accesses to the window's memory. The device sees its own memory as it is, so there is nothing
// more to do than for a window of the host.
func (w *Win[T]) Sync() error {
	return w.call("gpu.Sync", func() error { return w.sync.Sync() })
}

// call makes a call of the window that has the epochs.
func (w *Win[T]) call(op string, f func() error) error {
	if err := w.valid(op); err != nil {
		return err
	}
	return named(f(), op)
}

// settled makes a call when the copies of this rank at a rank, or at all, are over: other ranks may count on them
// afterwards. The call is made also if a copy has failed.
func (w *Win[T]) settled(op string, rank int, call func() error) error {
	if err := w.valid(op); err != nil {
		return err
	}
	failed := w.paths.settle(rank)
	err := named(call(), op)
	switch {
	case failed == nil:
		return err
	case rank == allRanks:
		rank = mpi.Undefined
	}
	copies := w.failed(op, rank, false, failed)
	if err == nil {
		return copies
	}
	return errors.Join(copies, err)
}
