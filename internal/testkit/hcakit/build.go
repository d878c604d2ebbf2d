package hcakit

import (
	"os"
	"testing"

	"github.com/gorun-mpi/mpi/internal/testkit/proc"
	"github.com/gorun-mpi/mpi/internal/testkit/softlib"
)

var library = softlib.Library{Name: "softhca", Alias: "libibverbs.so.1"}

// Main runs the tests and removes what Build and package proc have made. It is for TestMain: os.Exit(hcakit.Main(m)).
func Main(m *testing.M) int { return softlib.Main(m) }

// Build returns the path of libsofthca.so, for dlopen and for GORUN_VERBS_LIB. softlib.Library.Build says when it is
// built, and when the test is skipped.
func Build(tb testing.TB) string {
	tb.Helper()
	needHeaders(tb)
	return library.Build(tb)
}

// Folder returns a folder for LD_LIBRARY_PATH in which libibverbs.so.1 is the software HCA.
func Folder(tb testing.TB) string {
	tb.Helper()
	needHeaders(tb)
	return library.Folder(tb)
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
	if proc.Installed("libibverbs-dev") {
		tb.Fatalf("%s names libibverbs-dev, and <infiniband/tm_types.h> is not here", proc.RequirePeers)
	}
	tb.Skip("<infiniband/tm_types.h> is not here (Debian: libibverbs-dev)")
}
