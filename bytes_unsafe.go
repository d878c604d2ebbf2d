package mpi

import (
	"sync/atomic"
	"unsafe"

	"github.com/gorun-mpi/mpi/pml"
)

// bytesOf returns the memory of buf. The caller has checked that T has no pointers, or checkLayout has checked that no
// byte that is moved belongs to one.
func bytesOf[T any](buf []T) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(buf))), uintptr(len(buf))*unsafe.Sizeof(*new(T)))
}

// typeOf is a pointer that is the same for no other type than T.
func typeOf[T any]() *byte {
	p := any((*T)(nil))
	return (*[2]*byte)(unsafe.Pointer(&p))[0]
}

// typeSet remembers types that have been checked and can be sent. A type has one place, which another may take: then it
// is checked again.
type typeSet [256]atomic.Pointer[byte]

var knownTypes typeSet

func (s *typeSet) at(t *byte) *atomic.Pointer[byte] {
	return &s[uintptr(unsafe.Pointer(t))>>5%uintptr(len(s))]
}

func (s *typeSet) add(t *byte)      { s.at(t).Store(t) }
func (s *typeSet) has(t *byte) bool { return s.at(t).Load() == t }

// known reports whether a T has been sent or received before.
func known[T any]() bool { return knownTypes.has(typeOf[T]()) }

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

const _ = -unsafe.Offsetof(Request{}.request) // does not compile unless it is 0

// standInOf is the stand-in whose Request r is.
func standInOf(r *Request) *standIn { return (*standIn)(unsafe.Pointer(r)) }

const _ = -unsafe.Offsetof(standIn{}.Request)

// codePointer is where the code of an operator is: the same for all uses of one function.
func codePointer[T any](op Op[T]) uintptr { return **(**uintptr)(unsafe.Pointer(&op)) }

// bitsOf has v, of at most 8 bytes, in its first bytes, and valueOf is the value that they are.
func bitsOf[T any](v T) (b uint64) {
	*(*T)(unsafe.Pointer(&b)) = v
	return b
}

func valueOf[T any](b uint64) T { return *(*T)(unsafe.Pointer(&b)) }

func addressOf[T any](p *T) unsafe.Pointer { return unsafe.Pointer(p) }

// overlap reports whether two slices share memory.
func overlap[T any](a, b []T) bool {
	at, bt := uintptr(unsafe.Pointer(unsafe.SliceData(a))), uintptr(unsafe.Pointer(unsafe.SliceData(b)))
	size := unsafe.Sizeof(*new(T))
	return len(a) > 0 && len(b) > 0 && at < bt+size*uintptr(len(b)) && bt < at+size*uintptr(len(a))
}
