//go:build !ucx || !linux || !cgo

package ucx

import (
	"fmt"

	"github.com/gorun-mpi/mpi/transport"
)

// New says that this program was built without UCX.
func New(Options) (transport.Device, error) {
	return nil, fmt.Errorf("%w: this program was built without UCX (go build -tags ucx, with cgo, for Linux)",
		transport.ErrUnavailable)
}

// Query says likewise.
func Query(string) (Info, error) {
	return Info{}, fmt.Errorf("this program was built without UCX (go build -tags ucx, with cgo, for Linux)")
}
