// Package order has stores that are ordered as far as a release needs and no further.
//
// On amd64 every store of sync/atomic is an XCHG, which also waits until all earlier stores are done: 10 ns where this
// was written, as much again as taking a lock. Processors of this kind never let a store pass an earlier load or
// store, so that giving up a lock needs only a plain one.
//
//	Owns:     what sync/atomic does not offer
//	May call: the standard library
//	Never:    be used where a later load must not pass the store
package order
