//go:build amd64

package ring

import "unsafe"

//go:noescape
func prefetchW(p unsafe.Pointer, lines int)

//go:noescape
func prefetch(p unsafe.Pointer, lines int)
