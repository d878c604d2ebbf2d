//go:build ofi && linux && cgo

package e2e

import "testing"

func init() {
	// Small buffers: opening an endpoint writes to thousands of them.
	taggedWays["ofi"] = []string{"GORUN_TRANSPORTS=ofi", "GORUN_OFI_PROVIDER=tcp;ofi_rxm",
		"FI_OFI_RXM_BUFFER_SIZE=2048"}
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
