//go:build !amd64 || race

package pml

import "sync/atomic"

// storeRelease stores v as sync/atomic does, but later loads of this processor may pass it.
func storeRelease(p *atomic.Uint32, v uint32) { p.Store(v) }
