//go:build !race

package order

import "sync/atomic"

// Release stores v as sync/atomic does, but later loads of this processor may pass it.
//
//go:noescape
func Release(p *atomic.Uint32, v uint32)
