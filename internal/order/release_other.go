//go:build !amd64 || race

package order

import "sync/atomic"

// Release stores v as sync/atomic does, but later loads of this processor may pass it.
func Release(p *atomic.Uint32, v uint32) { p.Store(v) }
