package truth

import (
	"bytes"
	"unsafe"
)

// sameBytes reports whether a and b are the same to the bit. It is fast, and the race detector sees that they are read.
func sameBytes[T any](a, b []T) bool { return bytes.Equal(bytesOf(a), bytesOf(b)) }

func bytesOf[T any](s []T) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(s))), uintptr(len(s))*unsafe.Sizeof(*new(T)))
}
