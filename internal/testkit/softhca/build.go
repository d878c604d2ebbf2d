package softhca

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"testing"

	"github.com/gorun-mpi/mpi/internal/testkit/proc"
)

// built is the library of this test binary.
var built struct {
	mu   sync.Mutex
	root string // the folder of everything; "" before the first build
	err  error  // tried once
}

// Main runs the tests and removes what Build and package proc have made. It is for TestMain: os.Exit(softhca.Main(m)).
func Main(m *testing.M) int {
	code := proc.Main(m)
	built.mu.Lock()
	defer built.mu.Unlock()
	if built.root != "" {
		os.RemoveAll(built.root)
	}
	return code
}

// Build returns the path of libsofthca.so, for dlopen and for GORUN_VERBS_LIB. It is built at the first call. Where
// there is no C compiler the test is skipped, or fails if the peers are required (proc.RequirePeers); on
// other systems than Linux it is skipped in any case.
func Build(tb testing.TB) string {
	tb.Helper()
	if runtime.GOOS != "linux" {
		tb.Skip("the software HCA is for Linux")
	}
	proc.RequireProgram(tb, "cc", "gcc libc6-dev")
	needHeaders(tb)
	built.mu.Lock()
	defer built.mu.Unlock()
	if built.root == "" {
		built.root, built.err = build()
	}
	if built.err != nil {
		tb.Fatal(built.err)
	}
	return filepath.Join(built.root, "libsofthca.so")
}

// Folder returns a folder for LD_LIBRARY_PATH in which libibverbs.so.1 is the software HCA.
func Folder(tb testing.TB) string {
	tb.Helper()
	return filepath.Join(filepath.Dir(Build(tb)), "lib")
}

// Env returns an environment in which programs find the software HCA in place of libibverbs, on a fabric of its own
// that ends with the test. Knobs are of the form SOFTHCA_SEED=1.
func Env(tb testing.TB, knobs ...string) []string {
	tb.Helper()
	env := append(os.Environ(), "LD_LIBRARY_PATH="+Folder(tb), "SOFTHCA_DIR="+tb.TempDir())
	return append(env, knobs...)
}

func needHeaders(tb testing.TB) {
	tb.Helper()
	if _, err := os.Stat("/usr/include/infiniband/tm_types.h"); err == nil {
		return
	}
	if os.Getenv(proc.RequirePeers) != "" {
		tb.Fatalf("%s is set and <infiniband/tm_types.h> is not here (Debian: libibverbs-dev)", proc.RequirePeers)
	}
	tb.Skip("<infiniband/tm_types.h> is not here (Debian: libibverbs-dev)")
}

func build() (string, error) {
	script, err := proc.CheckoutFile("scripts/softhca")
	if err != nil {
		return "", err
	}
	root, err := os.MkdirTemp("", "softhca-")
	if err != nil {
		return "", err
	}
	out := filepath.Join(root, "libsofthca.so")
	if text, err := exec.Command(script, out).CombinedOutput(); err != nil {
		return root, fmt.Errorf("%s: %v\n%s", script, err, text)
	}
	if err := os.Mkdir(filepath.Join(root, "lib"), 0o777); err != nil {
		return root, err
	}
	return root, os.Symlink(out, filepath.Join(root, "lib", "libibverbs.so.1"))
}
