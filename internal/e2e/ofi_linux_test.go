//go:build ofi && linux && cgo

package e2e

import (
	"errors"
	"fmt"
	"os"
	"testing"

	"github.com/gorun-mpi/mpi"
)

func init() {
	roles["ofi unavailable"] = func() error {
		_, err := mpi.Init()
		fmt.Printf("unavailable %v: %v\n", errors.Is(err, mpi.ErrUnavailable), err)
		os.Exit(3)
		return nil
	}
}

var overOFI = []string{"GORUN_TRANSPORTS=ofi", "GORUN_OFI_PROVIDER=tcp;ofi_rxm"}

func TestOFIPeerDies(t *testing.T) {
	t.Parallel()
	for name := range ways {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dies(t, "peer dies", name, overOFI...)
		})
	}
}

func TestOFIStopped(t *testing.T) {
	t.Parallel()
	stoppedAtFirstContact(t, overOFI...)
}

func TestOFIIdle(t *testing.T) {
	t.Parallel()
	idles(t, 2, []string{"recv", "probe", "barrier", "large send"}, overOFI...)
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
			run(t, spec{n: 2, role: "ofi unavailable", env: []string{"GORUN_TRANSPORTS=ofi", c.env}}, 3).
				says(`^unavailable true: mpi: Init: .*` + c.want)
		})
	}
}
