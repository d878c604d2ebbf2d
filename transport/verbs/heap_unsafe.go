//go:build verbs && linux && cgo

package verbs

import (
	"reflect"
	"runtime/cgo"
	"unsafe"
)

// onHeap reports whether b, which the caller holds, lies in an object of the Go heap. Only there may one make weak
// pointers and cleanups: with memory of C's, of mmap or of this package's slabs the runtime ends the program, and
// memory of the linker's, the globals, never dies.
//
// The runtime has no function that says so, but reflect has to know: a pointer to a type that is never on the heap,
// which is what cgo makes of C's incomplete types, must not point there, and Pointer panics if it does. That is a look
// into the runtime's tables and touches neither b nor the heap. A stack would be taken for the heap: b is none, since
// it has come through an interface. heapIsKnown finds out whether a future reflect still does it.
func onHeap(b []byte) (yes bool) {
	at := uintptr(unsafe.Pointer(unsafe.SliceData(b)))
	p := *(**cgo.Incomplete)(unsafe.Pointer(&at))
	defer func() { yes = recover() != nil }()
	reflect.ValueOf(p).Pointer()
	return false
}

var global [cacheLeast]byte

// heapIsKnown reports whether onHeap can tell memory of all kinds apart.
func heapIsKnown() bool {
	off := pages(cacheLeast)
	if off == nil {
		return false
	}
	defer unmap(off)
	on := make([]byte, 2*cacheLeast)
	return onHeap(on) && onHeap(on[cacheLeast-1:]) && !onHeap(off) && !onHeap(global[:])
}
