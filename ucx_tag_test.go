//go:build ucx && linux && cgo

package mpi

import (
	"os"
	"testing"

	"github.com/gorun-mpi/mpi/transport"
	"github.com/gorun-mpi/mpi/transport/ucx"
)

// everywhere runs over UCX too, with what UCX_TLS leaves to it. GORUN_TEST_BENEATH=ucx has the tests go over UCX that
// name no transport.
func init() {
	libraries["ucx"] = overUCX
	further = append(further, fabric{"ucx", overUCX})
	if os.Getenv("GORUN_TEST_BENEATH") == "ucx" {
		Beneath = func() []Option { return []Option{overUCX(nil)} }
	}
}

func overUCX(testing.TB) Option {
	return withDevices(func(rank int, d transport.Device) transport.Device {
		d.Close()
		return ok(ucx.New(ucx.Options{Rank: rank, Size: 1 << 10}))
	})
}
