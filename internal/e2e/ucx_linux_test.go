//go:build ucx && linux && cgo

package e2e

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gorun-mpi/mpi/internal/testkit/proc"
)

func init() {
	taggedWays["ucx shared memory"] = []string{"GORUN_TRANSPORTS=ucx", "UCX_TLS=posix,sysv,cma,self"}
	taggedWays["ucx tcp"] = []string{"GORUN_TRANSPORTS=ucx", "UCX_TLS=tcp,self"}
}

// Where there is no libucp, it is too old, or nothing is left to it, Init fails with ErrUnavailable and says why.
func TestUCXUnavailable(t *testing.T) {
	t.Parallel()
	old := filepath.Join(t.TempDir(), "libucp.so.0")
	c := exec.Command(proc.RequireProgram(t, "gcc", "gcc"), "-shared", "-fPIC", "-x", "c", "-o", old, "-")
	c.Stdin = strings.NewReader("void ucp_get_version(unsigned *a, unsigned *b, unsigned *c)" +
		"{ *a = 1; *b = 12; *c = 1; }")
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, c := range []struct{ env, want string }{
		{"GORUN_UCX_LIB=/nowhere/libucp.so.0", `ucx: .*opening /nowhere/libucp.so.0: .*No such file`},
		{"GORUN_UCX_LIB=" + old, `ucx: .*it is version 1.12.1; 1.13 and later`},
		{"UCX_TLS=nonsense", `ucx: .*no transport of UCX is left: see UCX_TLS and UCX_NET_DEVICES`},
	} {
		t.Run(c.env, func(t *testing.T) {
			t.Parallel()
			run(t, spec{n: 2, role: "unavailable", env: []string{"GORUN_TRANSPORTS=ucx", c.env}}, 3).silent().
				says(`^unavailable true: mpi: Init: .*` + c.want)
		})
	}
}
