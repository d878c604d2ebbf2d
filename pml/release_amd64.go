//go:build !race

package pml

// release gives back l, which is held: by a plain store where no goroutine wants it, else by unlockSlow.
//
// On amd64 every store of sync/atomic is an XCHG, which also waits until all earlier stores are done: 10 ns where this
// was written, as much again as taking a lock. Processors of this kind never let a store pass an earlier load or
// store, so that giving up a lock needs only a plain one.
//
//go:noescape
func release(l *engineLock)

// releaseWanted is release where a goroutine wants l.
func releaseWanted(l *engineLock) { l.unlockSlow() }
