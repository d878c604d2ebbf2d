//go:build !amd64

package ring

import "unsafe"

func prefetchW(unsafe.Pointer, int) {}

func prefetchSlotsW(unsafe.Pointer) {}

func prefetchSlots(unsafe.Pointer) {}

func prefetch(unsafe.Pointer, int) {}

const streams = false

func stream(dst, src unsafe.Pointer, lines int) {}
