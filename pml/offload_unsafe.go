package pml

import "unsafe"

// addressOf tells buffers apart; nobody makes a pointer of it again.
func addressOf(buf []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(buf))) }
