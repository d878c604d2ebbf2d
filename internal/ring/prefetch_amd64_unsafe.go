//go:build amd64

package ring

import "unsafe"

//go:noescape
func own(p unsafe.Pointer, lines int)

//go:noescape
func fetch(p unsafe.Pointer, lines int)
