//go:build ucx && cuda && linux && cgo

package gpu

import "testing"

// UCX, as it is built for Debian, knows memory of the host only: messages go through it as a whole.
func init() {
	jobWays["ucx"] = func(*testing.T) []string { return []string{"UCX_TLS=posix,sysv,cma,self"} }
}
