package mpi

import (
	"unsafe"

	"github.com/gorun-mpi/mpi/pml"
)

// bytesOf is buf's memory. T has been checked to have no pointers.
func bytesOf[T any](buf []T) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(buf))), uintptr(len(buf))*unsafe.Sizeof(*new(T)))
}

// typeOf is a pointer that is the same for no other type than T.
func typeOf[T any]() *byte {
	p := any((*T)(nil))
	return (*[2]*byte)(unsafe.Pointer(&p))[0]
}

// ready: a call with these arguments is one that nothing is wrong with, and not an unusual one. The slow way to find
// out is checkSend or checkRecv.
func ready[T any](c *Comm, rank, tag int) bool {
	return c != nil && c.shared != nil && c.ctx == nil && uint(rank) < uint(c.size) && uint(tag) <= MaxTag &&
		!c.freed.Load() && c.known.Load() == typeOf[T]()
}

func sizeOf[T any]() int { return int(unsafe.Sizeof(*new(T))) }

// sliceOf views memory of Alloc, which is page-aligned, as n elements.
func sliceOf[T any](mem []byte, n int) []T {
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(mem))), n)
}

// outer is the Request that newRequest made with r in it.
func outer(r *pml.Request) *Request { return (*Request)(unsafe.Pointer(r)) }

// setOf is rs as the engine knows them: pml.Request is the first field of Request, so that the pointers are the same.
func setOf(rs []*Request) pml.Set {
	return unsafe.Slice((**pml.Request)(unsafe.Pointer(unsafe.SliceData(rs))), len(rs))
}

const _ = -unsafe.Offsetof(Request{}.Request) // does not compile unless it is 0
