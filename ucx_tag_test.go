//go:build ucx && linux && cgo

package mpi

import (
	"testing"

	"github.com/gorun-mpi/mpi/transport"
	"github.com/gorun-mpi/mpi/transport/ucx"
)

// everywhere runs over UCX too, with what UCX_TLS leaves to it.
func init() { further = append(further, fabric{"ucx", overUCX}) }

func overUCX(testing.TB) Option {
	return withDevices(func(rank int, d transport.Device) transport.Device {
		d.Close()
		return ok(ucx.New(ucx.Options{Rank: rank, Size: 1 << 10}))
	})
}
