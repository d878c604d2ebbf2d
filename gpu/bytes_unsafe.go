package gpu

import "unsafe"

func alignOf[T any]() uint64 { return uint64(unsafe.Alignof(*new(T))) }

// bytesOf returns the memory of buf, whose elements have no pointers.
func bytesOf[T any](buf []T) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(buf))), uintptr(len(buf))*unsafe.Sizeof(*new(T)))
}

// elementsOf views b, which is aligned for a T, as n elements, and is not nil.
func elementsOf[T any](b []byte, n int) []T {
	if len(b) == 0 {
		return make([]T, n)
	}
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(b))), n)
}

// addressOf is where pinned memory begins, as a driver has it.
func addressOf(b []byte) uint64 { return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(b)))) }
