//go:build !linux

package shm

import (
	"fmt"
	"runtime"

	"github.com/gorun-mpi/mpi/transport"
)

// New returns ErrUnavailable: shared memory needs Linux.
func New(Options) (transport.Device, error) {
	return nil, fmt.Errorf("%w: shm needs Linux (memfd_create, futex), this is %s",
		transport.ErrUnavailable, runtime.GOOS)
}
