//go:build !race

package report

// Goroutine returns an address that the calling goroutine has as long as it lives, and no other goroutine meanwhile. 0:
// it is unknown.
func Goroutine() uintptr
