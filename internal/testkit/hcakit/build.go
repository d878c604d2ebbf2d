package hcakit

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"
	"testing"

	"github.com/gorun-mpi/mpi/internal/testkit/proc"
)

// built is the library of this test binary.
var built struct {
	mu      sync.Mutex
	root    string // the folder of everything; "" before the first build
	private bool   // root is of this test binary alone
	err     error  // tried once
}

// Main runs the tests and removes what Build and package proc have made. It is for TestMain: os.Exit(hcakit.Main(m)).
func Main(m *testing.M) int {
	code := proc.Main(m)
	built.mu.Lock()
	defer built.mu.Unlock()
	if built.private {
		os.RemoveAll(built.root)
	}
	return code
}

// Build returns the path of libsofthca.so, for dlopen and for GORUN_VERBS_LIB. It is built at the first call, unless
// another test binary has built it of the same sources. Where there is no C compiler the test is skipped, or fails if
// make has installed one (proc.RequirePeers); on other systems than Linux it is skipped in any case.
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
		built.root, built.private, built.err = build()
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
	if proc.Installed("libibverbs-dev") {
		tb.Fatalf("%s names libibverbs-dev, and <infiniband/tm_types.h> is not here", proc.RequirePeers)
	}
	tb.Skip("<infiniband/tm_types.h> is not here (Debian: libibverbs-dev)")
}

// build makes the library in bin of the checkout, once for all test binaries; where that cannot be written, in a folder
// that Main removes.
func build() (root string, private bool, err error) {
	script, err := proc.CheckoutFile("scripts/softhca")
	if err != nil {
		return "", false, err
	}
	bin := filepath.Join(filepath.Dir(script), "..", "bin")
	if root, err := sharedLibrary(script, bin); err == nil {
		return root, false, nil
	}
	root, err = buildIn("", script)
	return root, true, err
}

// sharedLibrary returns the folder in bin of the library of these sources, which the first that comes builds. The
// others wait.
func sharedLibrary(script, bin string) (string, error) {
	name, err := identity(script)
	if err != nil {
		return "", err
	}
	root := filepath.Join(bin, "softhca-"+name)
	if err := os.MkdirAll(bin, 0o777); err != nil {
		return "", err
	}
	lock, err := os.Create(filepath.Join(bin, "softhca.lock"))
	if err != nil {
		return "", err
	}
	defer lock.Close()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return "", err
	}
	if _, err := os.Stat(root); err == nil {
		return root, nil
	}
	made, err := buildIn(bin, script)
	if err == nil {
		err = os.Rename(made, root) // whole or not at all
	}
	if err != nil {
		os.RemoveAll(made)
	}
	return root, err
}

// identity is a hash of all that the library is made of.
func identity(script string) (string, error) {
	h := sha256.New()
	sources, err := filepath.Glob(filepath.Join(filepath.Dir(script), "..", "softdevices", "softhca", "*.*"))
	if err != nil {
		return "", err
	}
	for _, path := range append(sources, script) {
		text, err := os.ReadFile(path)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(h, "%s %d\n%s", filepath.Base(path), len(text), text)
	}
	fmt.Fprintf(h, "%q %q", os.Getenv("CC"), os.Getenv("SOFTHCA_CFLAGS"))
	return hex.EncodeToString(h.Sum(nil)[:8]), nil
}

// buildIn makes the library in a new folder of that one.
func buildIn(folder, script string) (root string, err error) {
	if root, err = os.MkdirTemp(folder, "softhca-"); err != nil {
		return "", err
	}
	out := filepath.Join(root, "libsofthca.so")
	if text, err := exec.Command(script, out).CombinedOutput(); err != nil {
		return root, fmt.Errorf("%s: %v\n%s", script, err, text)
	}
	if err := os.Chmod(root, 0o755); err != nil { // for ranks of other users
		return root, err
	}
	if err := os.Mkdir(filepath.Join(root, "lib"), 0o755); err != nil {
		return root, err
	}
	return root, os.Symlink("../libsofthca.so", filepath.Join(root, "lib", "libibverbs.so.1"))
}
