package acceltest

import "unsafe"

// address is where b begins, as a number.
func address(b []byte) uint64 { return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(b)))) }
