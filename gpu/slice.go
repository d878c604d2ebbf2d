package gpu

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"sync/atomic"

	"github.com/gorun-mpi/mpi"
	"github.com/gorun-mpi/mpi/accel"
	"github.com/gorun-mpi/mpi/internal/door"
	"github.com/gorun-mpi/mpi/internal/mpierr"
)

// Slice is n elements of T in the memory of a device, as []T is in the memory of the host. It is small, and is passed
// by value. The zero Slice has no elements, and stands for nil where a call of package mpi takes nil.
type Slice[T any] struct {
	of      *allocation // nil: the zero Slice
	addr    uint64
	n       int
	stream  uint64
	ordered bool // stream is meaningful
	_       [0]*T
}

// allocation is what all slices of one call of Wrap or Alloc have in common.
type allocation struct {
	driver accel.Driver // nil: there are no bytes
	memory accel.Memory
	own    bool       // Alloc has made it, and Free gives it back
	bad    *mpi.Error // why its slices cannot be used; nil: they can
	freed  atomic.Bool

	// results counts the collective calls and receives that are to copy a result there, and the copies of windows that
	// have such a buffer.
	results atomic.Int32
}

// Wrap returns the n elements of T at address ptr, which another package has allocated on a device: by cuMemAlloc,
// cudaMalloc or cuMemCreate. It asks the driver once. The memory stays the other package's, which frees it after
// [Slice.Free].
//
// Errors: mpi.ErrType if a T holds pointers; mpi.ErrCount for a negative n; mpi.ErrBuffer if ptr is no multiple of T's
// alignment, is not of device memory (memory of the host, pinned or not, managed memory, memory that has been freed),
// or if the n elements reach beyond the allocation; mpi.ErrUnavailable if there is no driver; mpi.ErrDevice if the
// driver reports an error.
func Wrap[T any](ptr uint64, n int) (Slice[T], error) {
	size, err := sizeOf[T]("gpu.Wrap", n)
	if err != nil {
		return Slice[T]{}, err
	}
	if a := alignOf[T](); ptr%a != 0 {
		return Slice[T]{}, mpierr.New("gpu.Wrap", mpi.ErrBuffer, "the address is %#x, and elements of type %v lie at "+
			"multiples of %d", ptr, reflect.TypeFor[T](), a)
	}
	if size == 0 {
		return Slice[T]{of: &allocation{}, n: n}, nil
	}
	d, err := driver("gpu.Wrap")
	if err != nil {
		return Slice[T]{}, err
	}
	return wrapOn[T](d, ptr, n, size)
}

// wrapOn is Wrap with a driver.
func wrapOn[T any](d accel.Driver, ptr uint64, n int, size int64) (Slice[T], error) {
	m, err := d.Query(ptr)
	if err != nil {
		return Slice[T]{}, driverError("gpu.Wrap", err)
	}
	if why := unfit(m, ptr, size); why != nil {
		return Slice[T]{}, mpierr.New("gpu.Wrap", mpi.ErrBuffer, "%w", why)
	}
	return Slice[T]{of: &allocation{driver: d, memory: m}, addr: ptr, n: n}, nil
}

// unfit is why size bytes at addr cannot be a Slice; nil: they can. m is what the driver says of addr.
func unfit(m accel.Memory, addr uint64, size int64) error {
	switch m.Kind {
	case accel.OnBoard:
		if addr < m.Base || addr-m.Base > uint64(m.Size) || size > m.Size-int64(addr-m.Base) {
			return fmt.Errorf("%d bytes at %#x are asked for, and the allocation there is %d bytes at %#x; ask for fewer "+
				"elements", size, addr, m.Size, m.Base)
		}
		return nil
	case accel.Pinned:
		return fmt.Errorf("at %#x is %v; use a Go slice of it, with the call of package mpi", addr, m.Kind)
	case accel.Managed:
		return fmt.Errorf("at %#x is %v, which moves between host and device while a program runs, so that no copy can "+
			"rely on where it is; use memory of gpu.Alloc, cudaMalloc or cuMemAlloc", addr, m.Kind)
	}
	return fmt.Errorf("no device has memory at %#x: it is memory of the host, for which the calls of package mpi are, or "+
		"it has been freed", addr)
}

// Alloc makes n elements of T on a device, whose number is an index in [Devices]. Other ranks of this host can map the
// memory, and an RDMA adapter can reach it where the device allows. Its contents are not defined. [Slice.Free] gives it
// back.
//
// Errors: mpi.ErrType, mpi.ErrCount for a negative n or a wrong device, mpi.ErrNoMemory if the device has no room,
// mpi.ErrUnavailable if there is no driver, mpi.ErrDevice if the driver reports another error.
func Alloc[T any](device, n int) (Slice[T], error) {
	size, err := sizeOf[T]("gpu.Alloc", n)
	if err != nil {
		return Slice[T]{}, err
	}
	d, err := driver("gpu.Alloc")
	if err != nil {
		return Slice[T]{}, err
	}
	all, err := d.Devices()
	if err != nil {
		return Slice[T]{}, driverError("gpu.Alloc", err)
	}
	if device < 0 || device >= len(all) {
		return Slice[T]{}, mpierr.New("gpu.Alloc", mpi.ErrCount, "there is no device %d; this process has %d, with numbers "+
			"from 0 on (CUDA_VISIBLE_DEVICES decides)", device, len(all))
	}
	if size == 0 {
		return Slice[T]{of: &allocation{}, n: n}, nil
	}
	return allocOn[T](d, device, n, size)
}

// outOfMemory is the answer of a driver whose device has no room.
const outOfMemory = "CUDA_ERROR_OUT_OF_MEMORY"

// allocOn is Alloc with a driver.
func allocOn[T any](d accel.Driver, device, n int, size int64) (Slice[T], error) {
	m, err := d.Alloc(device, size)
	var said *accel.Error
	switch {
	case errors.As(err, &said) && said.Name == outOfMemory:
		return Slice[T]{}, mpierr.New("gpu.Alloc", mpi.ErrNoMemory, "%d elements of %d bytes on device %d: %w; ask for fewer, "+
			"or free others first", n, size/int64(n), device, err)
	case err != nil:
		return Slice[T]{}, driverError("gpu.Alloc", err)
	}
	return Slice[T]{of: &allocation{driver: d, memory: m, own: true}, addr: m.Base, n: n}, nil
}

// sizeOf is how many bytes n elements have.
func sizeOf[T any](op string, n int) (int64, error) {
	t := reflect.TypeFor[T]()
	if err := door.Through().Type(t); err != nil {
		return 0, mpierr.New(op, mpi.ErrType, "%w", err)
	}
	if size := int64(t.Size()); n < 0 || size > 0 && int64(n) > math.MaxInt64/2/size {
		return 0, mpierr.New(op, mpi.ErrCount, "%d elements of %d bytes were asked for", n, size)
	}
	return int64(n) * int64(t.Size()), nil
}

// Slice returns the elements from i up to j, as s[i:j] does. If i or j is out of range, each call that is given the
// result returns mpi.ErrCount, and so does its Err.
func (s Slice[T]) Slice(i, j int) Slice[T] {
	if i < 0 || j < i || j > s.n {
		s.of = &allocation{bad: mpierr.New("gpu.Slice", mpi.ErrCount, "the elements from %d up to %d of a slice of %d were "+
			"asked for", i, j, s.n)}
		s.n = 0
		return s
	}
	s.addr += uint64(i) * uint64(reflect.TypeFor[T]().Size())
	s.n = j - i
	return s
}

// On returns s with its copies ordered by a stream of the program (a CUstream or cudaStream_t as a number; 0 is the
// default stream): a copy from or to it waits for the work that is on the stream when the call is made, and has ended
// when the call has returned, the request has been collected, or the window's epoch has ended. The stream must be of
// the device's primary context, and live until then: CUDA does not promise an error for a number that is no stream.
func (s Slice[T]) On(stream uint64) Slice[T] {
	s.stream, s.ordered = stream, true
	return s
}

// Len returns the number of elements.
func (s Slice[T]) Len() int { return s.n }

// Addr returns the address of the first element; 0 if there are no bytes.
func (s Slice[T]) Addr() uint64 { return s.addr }

// Device returns the number of the device whose memory s is; mpi.Undefined if there are no bytes.
func (s Slice[T]) Device() int {
	if s.of == nil || s.of.driver == nil {
		return mpi.Undefined
	}
	return s.of.memory.Device
}

// Err returns why s cannot be used, or nil: it is the result of a Slice out of range, or its memory has been freed.
func (s Slice[T]) Err() error {
	if _, err := s.buffer(); err != nil {
		return err
	}
	return nil
}

// Free ends the use of the allocation of which s is a part, with all its slices. It returns when no rank of this host
// has the memory mapped any more. Memory of [Alloc] is then given back; memory of [Wrap] may be freed by its owner.
//
// Errors: mpi.ErrNoMemory for a second Free, and for the zero Slice; mpi.ErrBuffer if a [Win] or a request that is not
// done has the memory, which can be used on then; mpi.ErrDevice if the driver reports an error: memory of Alloc may then
// be left until the process ends.
func (s Slice[T]) Free() error {
	switch {
	case s.of == nil:
		return mpierr.New("gpu.Free", mpi.ErrNoMemory, "the slice is the zero Slice; Wrap or Alloc returns one with memory")
	case s.of.bad != nil:
		return mpierr.New("gpu.Free", s.of.bad.Class, "%w", s.of.bad.Err)
	}
	if bad := s.of.endUse(); bad != nil {
		return mpierr.New("gpu.Free", bad.Class, "%w", bad.Err)
	}
	if s.of.driver == nil {
		return nil
	}
	err := door.Through().Forget(s.of.driver, s.of.memory)
	if inUse, ok := err.(*mpi.Error); ok {
		s.of.freed.Store(false)
		return mpierr.New("gpu.Free", inUse.Class, "%w", inUse.Err)
	}
	if err != nil {
		return driverError("gpu.Free", err)
	}
	if !s.of.own {
		return nil
	}
	if err := s.of.driver.Free(s.of.memory); err != nil {
		return driverError("gpu.Free", err)
	}
	return nil
}

// bytes is how many bytes s has.
func (s Slice[T]) bytes() int64 { return int64(s.n) * int64(reflect.TypeFor[T]().Size()) }

// buffer is s as the engine has it. The error names no call.
func (s Slice[T]) buffer() (accel.Buffer, *mpi.Error) {
	of := s.of
	switch {
	case of == nil:
		return accel.Buffer{}, nil
	case of.bad != nil:
		return accel.Buffer{}, of.bad
	case of.freed.Load():
		return accel.Buffer{}, mpierr.New("gpu.Slice", mpi.ErrBuffer, "the device memory at %#x has been freed", s.addr)
	case of.driver == nil:
		return accel.Buffer{}, nil
	}
	size := s.bytes()
	if !of.own && size > 0 {
		// Its owner may have freed it. A copy would fail, or would go into what lies there now.
		switch m, err := of.driver.Query(s.addr); {
		case err != nil:
			return accel.Buffer{}, driverError("gpu.Slice", err)
		case m.Kind != accel.OnBoard || m.ID != of.memory.ID:
			return accel.Buffer{}, mpierr.New("gpu.Slice", mpi.ErrBuffer, "the device memory at %#x has been freed by its "+
				"owner; call Free of the slice before that, and Wrap what is allocated later", s.addr)
		}
	}
	return accel.Buffer{Driver: of.driver, Memory: of.memory, Addr: s.addr, Len: size, Stream: s.stream,
		Ordered: s.ordered}, nil
}

// refused is the error of a call that was given a slice that cannot be used.
func refused(err *mpi.Error, op string, c *mpi.Comm, peer, tag int) error {
	return mpierr.At(mpierr.On(mpierr.New(op, err.Class, "%w", err.Err), c.Name()), peer, tag, false)
}
