package proc

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// RequirePeers is the variable that names the Debian packages that make has installed, separated by blanks. A test that
// misses a program of one of them fails: a skip would hide something. A test that misses any other program is skipped.
const RequirePeers = "GORUN_TEST_REQUIRE_PEERS"

const module = "github.com/gorun-mpi/mpi/"

// built are the programs of this test binary.
var built struct {
	mu     sync.Mutex
	folder string            // "" before the first build
	paths  map[string]string // by package
	errs   map[string]error  // a package that cannot be built fails each test that needs it, but is tried once
}

// Main runs the tests and removes what Build has made. It is for TestMain: os.Exit(proc.Main(m)).
func Main(m *testing.M) int {
	code := m.Run()
	built.mu.Lock()
	defer built.mu.Unlock()
	if built.folder != "" {
		os.RemoveAll(built.folder)
	}
	return code
}

// Gorun returns the path of gorun.
func Gorun(tb testing.TB) string {
	tb.Helper()
	return Build(tb, "cmd/gorun")
}

// Build returns the path of the program made of a package of this module, named by its path inside the module. It
// is built at the first call.
func Build(tb testing.TB, pkg string) string {
	tb.Helper()
	built.mu.Lock()
	defer built.mu.Unlock()
	if built.errs[pkg] == nil && built.paths[pkg] == "" {
		path, err := build(pkg)
		built.paths[pkg], built.errs[pkg] = path, err
	}
	if err := built.errs[pkg]; err != nil {
		tb.Fatal(err)
	}
	return built.paths[pkg]
}

func build(pkg string) (string, error) {
	if built.folder == "" {
		dir, err := os.MkdirTemp("", "proc-")
		if err != nil {
			return "", err
		}
		built.folder, built.paths, built.errs = dir, map[string]string{}, map[string]error{}
	}
	path := filepath.Join(built.folder, filepath.Base(pkg))
	cmd := exec.Command("go", "build", "-buildvcs=false", "-ldflags=-s", "-o", path, module+pkg)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building %s: %v\n%s", pkg, err, out)
	}
	return path, nil
}

// Alias gives a program another path for the time of a test, by which its processes are told from others.
func Alias(tb testing.TB, program string) string {
	tb.Helper()
	path := filepath.Join(tb.TempDir(), filepath.Base(program))
	if os.Link(program, path) == nil {
		return path
	}
	if out, err := exec.Command("cp", program, path).CombinedOutput(); err != nil { // between two file systems
		tb.Fatalf("copying %s: %v\n%s", program, err, out)
	}
	return path
}

// Parallel has n tests that call t.Parallel run at once, unless -parallel is given: they wait more than they compute.
// It is for TestMain.
func Parallel(n int) {
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	if !given {
		flag.Set("test.parallel", strconv.Itoa(n))
	}
}

// CheckoutFile returns the path of a file of this checkout, named by its path inside it. The working folder is in the
// checkout, as a test's is.
func CheckoutFile(name string) (string, error) {
	from, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for dir := from; ; dir = filepath.Dir(dir) {
		file := filepath.Join(dir, name)
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			_, err := os.Stat(file)
			return file, err
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("there is no go.mod above %s: run this inside of the checkout", from)
		}
	}
}

// CheckoutText returns the text of such a file, and the folder of the checkout.
func CheckoutText(tb testing.TB, name string) (text, root string) {
	tb.Helper()
	file, err := CheckoutFile(name)
	if err != nil {
		tb.Fatal(err)
	}
	body, err := os.ReadFile(file)
	if err != nil {
		tb.Fatal(err)
	}
	return string(body), strings.TrimSuffix(file, string(filepath.Separator)+filepath.FromSlash(name))
}

// RequireProgram returns the path of a program that the Debian package pkg has, for example mpiexec.hydra of mpich; pkg
// may be several, separated by blanks. Without the program the test is skipped, or fails where RequirePeers names one of
// these packages.
func RequireProgram(tb testing.TB, program, pkg string) string {
	tb.Helper()
	path, err := exec.LookPath(program)
	if err == nil {
		return path
	}
	if Installed(pkg) {
		tb.Fatalf("%s names %s, which has %s, and %s is not here", RequirePeers, pkg, program, program)
	}
	tb.Skipf("%s is not here (Debian: %s)", program, pkg)
	return ""
}

// Installed reports whether RequirePeers names one of the packages, which are separated by blanks.
func Installed(packages string) bool {
	names := strings.Fields(os.Getenv(RequirePeers))
	return slices.ContainsFunc(strings.Fields(packages), func(p string) bool { return slices.Contains(names, p) })
}
