//go:build !amd64 || race

package pml

// release gives back l, which is held.
func release(l *engineLock) {
	if l.wanted.Load() != 0 {
		l.unlockSlow()
		return
	}
	l.held.Store(0)
}
