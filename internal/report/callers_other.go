//go:build !amd64

package report

import "runtime"

// callers sets pcs to the return addresses of its caller and of the functions that have called that one.
func callers(pcs *[callersDeep]uintptr) { runtime.Callers(2, pcs[:]) }
