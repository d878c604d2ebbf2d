//go:build amd64

package ring

import (
	"unsafe"

	"golang.org/x/sys/cpu"
)

// streams is set if stream can be called.
var streams = cpu.X86.HasAVX

//go:noescape
func prefetchW(p unsafe.Pointer, lines int)

//go:noescape
func prefetchSlotsW(p unsafe.Pointer)

//go:noescape
func prefetchSlots(p unsafe.Pointer)

//go:noescape
func prefetch(p unsafe.Pointer, lines int)

//go:noescape
func stream(dst, src unsafe.Pointer, lines int)
