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

// fastPathOK reports whether these arguments are correct and usual: no ProcNull, no context, and the type
// that was sent or received on c last. If not, checkSend or checkRecv decides.
func fastPathOK[T any](c *Comm, rank, tag int) bool {
	return c != nil && c.shared != nil && c.ctx == nil && uint(rank) < uint(c.size) && uint(tag) <= MaxTag &&
		!c.freed.Load() && c.known.Load() == typeOf[T]()
}

// fastRecvOK is fastPathOK where rank and tag may be wildcards, which are -1.
func fastRecvOK[T any](c *Comm, rank, tag int) bool {
	return c != nil && c.shared != nil && c.ctx == nil && uint(rank+1) <= uint(c.size) && uint(tag+1) <= MaxTag+1 &&
		!c.freed.Load() && c.known.Load() == typeOf[T]()
}

func sizeOf[T any]() int { return int(unsafe.Sizeof(*new(T))) }

// sliceOf views memory of Alloc, which is page-aligned, as n elements.
func sliceOf[T any](mem []byte, n int) []T {
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(mem))), n)
}

// requestOf is the Request that newRequest made around r.
func requestOf(r *pml.Request) *Request { return (*Request)(unsafe.Pointer(r)) }

// setOf is rs as the engine knows them: pml.Request is the first field of Request, so that the pointers are the same.
func setOf(rs []*Request) pml.Set {
	return unsafe.Slice((**pml.Request)(unsafe.Pointer(unsafe.SliceData(rs))), len(rs))
}

const _ = -unsafe.Offsetof(Request{}.Request) // does not compile unless it is 0
