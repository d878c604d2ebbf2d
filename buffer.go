package mpi

import (
	"fmt"
	"math"
	"sync/atomic"

	"github.com/gorun-mpi/mpi/internal/meminfo"
	"github.com/gorun-mpi/mpi/internal/mpierr"
	"github.com/gorun-mpi/mpi/transport"
)

// Buffer is memory for messages outside the Go heap; see Alloc.
type Buffer[T any] struct {
	data  []T
	mem   []byte
	owner *transport.Memory // nil: ordinary memory, for want of better
	freed atomic.Bool
}

// Alloc returns a zeroed buffer of n elements of T that peers on this host, and RDMA devices, reach directly; §9.2
// (MPI_Alloc_mem). Large messages from it are copied once. Under RunLocal, in a world of one, before Init, or over a
// transport without such memory, it is ordinary memory. Free or Finalize ends it. Errors: ErrType; ErrCount for a
// negative or too large n; ErrNoMemory; ErrInit after Finalize.
func Alloc[T any](n int) (*Buffer[T], error) {
	if err := fixedType[T](); err != nil {
		return nil, &Error{Op: "Alloc", Class: ErrType, Peer: Undefined, Tag: Undefined, Err: err}
	}
	size := sizeOf[T]()
	if n < 0 || size > 0 && n > math.MaxInt64/2/size {
		return nil, mpierr.New("Alloc", ErrCount, "%d elements of %d bytes were asked for", n, size)
	}
	owner, err := processMemory()
	if err != nil {
		return nil, err
	}
	if owner == nil {
		if err := meminfo.Check(n * size); err != nil {
			return nil, mpierr.New("Alloc", ErrNoMemory, "%d elements of %d bytes: %w", n, size, err)
		}
		return &Buffer[T]{data: make([]T, n)}, nil
	}
	mem, err := owner.Alloc(n * size)
	if err != nil {
		return nil, mpierr.New("Alloc", ErrNoMemory, "%d elements of %d bytes: %w", n, size, err)
	}
	return &Buffer[T]{data: sliceOf[T](mem, n), mem: mem, owner: owner}, nil
}

// processMemory is where this process allocates memory that peers can reach; nil: nowhere.
func processMemory() (*transport.Memory, error) {
	m := process.member.Load()
	switch {
	case process.finalized.Load():
		return nil, mpierr.New("Alloc", ErrInit, "called after Finalize")
	case m == nil:
		return nil, nil
	}
	return m.Memory(), nil
}

// Slice returns the buffer's memory, n elements. Do not use it after Free.
func (b *Buffer[T]) Slice() []T { return b.data }

// Free releases the memory; §9.2 (MPI_Free_mem). No operation may be using it. Every slice of it is invalid afterwards:
// an access ends the program. A second Free is ErrNoMemory.
func (b *Buffer[T]) Free() error {
	if b.freed.Swap(true) {
		return mpierr.New("Buffer.Free", ErrNoMemory, "the buffer has been freed already")
	}
	b.data = nil
	if b.owner == nil {
		return nil
	}
	if err := b.owner.Free(b.mem); err != nil {
		return mpierr.New("Buffer.Free", ErrNoMemory, "%w", fmt.Errorf("giving it back: %w", err))
	}
	return nil
}
