//go:build !amd64

package report

import "runtime"

// callers sets pcs to the return addresses of its caller and of the functions that have called that one, and returns
// how many there are. It has no use for known: runtime.Callers cannot end there.
func callers(pcs *[callersDeep]uintptr, _ *[linesKnown]uintptr) (n int) {
	return runtime.Callers(2, pcs[:])
}
