//go:build !race

package pml

import "sync/atomic"

// storeRelease stores v as sync/atomic does, but later loads of this processor may pass it.
//
// On amd64 every store of sync/atomic is an XCHG, which also waits until all earlier stores are done: 10 ns where this
// was written, as much again as taking a lock. Processors of this kind never let a store pass an earlier load or
// store, so that giving up a lock needs only a plain one.
//
//go:noescape
func storeRelease(p *atomic.Uint32, v uint32)
