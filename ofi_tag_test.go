//go:build ofi && linux && cgo

package mpi

import (
	"cmp"
	"os"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gorun-mpi/mpi/transport"
	"github.com/gorun-mpi/mpi/transport/ofi"
	"github.com/gorun-mpi/mpi/transport/tcp"
)

// everywhere runs over libfabric too, over a provider that GORUN_OFI_PROVIDER may name. GORUN_TEST_BENEATH=ofi has the
// tests go over it that name no transport.
func init() {
	if os.Getenv("FI_OFI_RXM_BUFFER_SIZE") == "" { // opening an endpoint writes to thousands of buffers of 16 KiB
		os.Setenv("FI_OFI_RXM_BUFFER_SIZE", "2048")
	}
	libraries["ofi"] = overOFI
	further = append(further, fabric{"ofi", overOFI})
	if os.Getenv("GORUN_TEST_BENEATH") == "ofi" {
		Beneath = func() []Option { return []Option{overOFI(nil)} }
	}
}

var ofiJobs atomic.Int64

func overOFI(testing.TB) Option {
	job := strconv.FormatInt(ofiJobs.Add(1), 10)
	provider := cmp.Or(os.Getenv("GORUN_OFI_PROVIDER"), "tcp;ofi_rxm")
	return withDevices(func(rank int, d transport.Device) transport.Device {
		d.Close()
		return ok(ofi.New(ofi.Options{Rank: rank, Size: 1 << 10, Provider: provider,
			Control: tcp.Options{Job: job, PeerTimeout: time.Minute, Secret: testSecret}}))
	})
}
