//go:build !verbs || !linux || !cgo

package verbs

import (
	"fmt"

	"github.com/gorun-mpi/mpi/internal/topology"
	"github.com/gorun-mpi/mpi/transport"
)

// New says that this program was built without verbs.
func New(Options) (transport.Device, error) {
	return nil, fmt.Errorf("%w: this program was built without verbs (go build -tags verbs, with cgo, for Linux)",
		transport.ErrUnavailable)
}

// Query says likewise.
func Query() ([]topology.Device, error) {
	return nil, fmt.Errorf("this program was built without verbs (go build -tags verbs, with cgo, for Linux)")
}
