package checkpoint

import "unsafe"

// bytesOf returns the memory of buf, whose elements have no pointers.
func bytesOf[T any](buf []T) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(buf))), uintptr(len(buf))*unsafe.Sizeof(*new(T)))
}
