//go:build !amd64

package report

import "runtime"

// callers sets pcs to the return addresses of its caller and of the functions that have called that one, and returns
// their hash.
func callers(pcs *[callersDeep]uintptr) (hash uint64) {
	for _, pc := range pcs[:runtime.Callers(2, pcs[:])] {
		hash = mix(hash, pc)
	}
	return hash
}
