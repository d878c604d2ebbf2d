//go:build !ofi || !linux || !cgo

package ofi

import (
	"fmt"

	"github.com/gorun-mpi/mpi/transport"
)

// New says that this program was built without libfabric.
func New(Options) (transport.Device, error) {
	return nil, fmt.Errorf("%w: %w", transport.ErrUnavailable, errAbsent)
}

// Query says likewise.
func Query(string) (Info, error) { return Info{}, errAbsent }
