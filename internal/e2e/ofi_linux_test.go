//go:build ofi && linux && cgo

package e2e

import (
	"testing"

	"github.com/gorun-mpi/mpi"
)

func init() {
	// Small buffers: opening an endpoint writes to thousands of them.
	taggedWays["ofi"] = []string{"GORUN_TRANSPORTS=ofi", "GORUN_OFI_PROVIDER=tcp;ofi_rxm",
		"FI_OFI_RXM_BUFFER_SIZE=2048"}
	// The send to the rank that dies may have ended over sockets, and the next call tells.
	w := ways["receiver before it receives"]
	send := w.survive
	w.survive = func(c *mpi.Comm) error {
		if err := send(c); err != nil {
			return err
		}
		return mpi.Ssend(c, []byte{1}, 1, tagData)
	}
	ways["receiver before it receives, then Ssend"] = w
	taggedWays["ofi sockets"] = []string{"GORUN_TRANSPORTS=ofi", "GORUN_OFI_PROVIDER=sockets"}
}

// Where there is no libfabric, or no provider that is fast or asked for, Init fails with ErrUnavailable and says why.
func TestOFIUnavailable(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ env, want string }{
		{"GORUN_OFI_LIB=/nowhere/libfabric.so.1", `ofi: .*opening /nowhere/libfabric.so.1: .*No such file`},
		{"GORUN_OFI_PROVIDER=nonsense", `ofi: .*GORUN_OFI_PROVIDER=nonsense`},
		{"GORUN_OFI_PROVIDER=", `ofi: .*no provider of a fast fabric here, but .*tcp;ofi_rxm`},
	} {
		t.Run(c.env, func(t *testing.T) {
			t.Parallel()
			run(t, spec{n: 2, role: "unavailable", env: []string{"GORUN_TRANSPORTS=ofi", c.env}}, 3).silent().
				says(`^unavailable true: mpi: Init: .*` + c.want)
		})
	}
}
