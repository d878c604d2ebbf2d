package mpi

import "unsafe"

// bytesOf is buf's memory. T has been checked to have no pointers.
func bytesOf[T any](buf []T) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(buf))), uintptr(len(buf))*unsafe.Sizeof(*new(T)))
}

func sizeOf[T any]() int { return int(unsafe.Sizeof(*new(T))) }

// sliceOf views memory of Alloc, which is page-aligned, as n elements.
func sliceOf[T any](mem []byte, n int) []T {
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(mem))), n)
}
