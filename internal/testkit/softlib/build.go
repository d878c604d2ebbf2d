package softlib

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/gorun-mpi/mpi/internal/testkit/proc"
)

// Library is the library of one software device, in this test binary.
type Library struct {
	Name  string // of its folder in softdevices, and of the script that builds it: softhca
	Alias string // the file name of the vendor's library: libibverbs.so.1

	mu      sync.Mutex
	root    string // the folder of everything; "" before the first build
	private bool   // root is of this test binary alone
	err     error  // tried once
}

// libraries are those that were built; guarded by its own lock.
var libraries struct {
	mu   sync.Mutex
	used []*Library
}

// Main runs the tests and removes what Build and package proc have made. It is for TestMain: os.Exit(softlib.Main(m)).
func Main(m *testing.M) int {
	code := proc.Main(m)
	libraries.mu.Lock()
	defer libraries.mu.Unlock()
	for _, l := range libraries.used {
		l.mu.Lock()
		if l.private {
			os.RemoveAll(l.root)
		}
		l.mu.Unlock()
	}
	return code
}

// Build returns the path of the library, for dlopen. It is built at the first call, unless another test binary has
// built it of the same sources. Where there is no C compiler the test is skipped, or fails if make has installed one
// (proc.RequirePeers); on other systems than Linux it is skipped in any case.
func (l *Library) Build(tb testing.TB) string {
	tb.Helper()
	if runtime.GOOS != "linux" {
		tb.Skipf("%s is for Linux", l.Name)
	}
	proc.RequireProgram(tb, "cc", "gcc libc6-dev")
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.root == "" {
		l.root, l.private, l.err = l.build()
		libraries.mu.Lock()
		libraries.used = append(libraries.used, l)
		libraries.mu.Unlock()
	}
	if l.err != nil {
		tb.Fatal(l.err)
	}
	return filepath.Join(l.root, l.file())
}

// Folder returns a folder for LD_LIBRARY_PATH in which the library has the vendor's name.
func (l *Library) Folder(tb testing.TB) string {
	tb.Helper()
	return filepath.Join(filepath.Dir(l.Build(tb)), "lib")
}

// Sources returns the device's folder in softdevices.
func (l *Library) Sources(tb testing.TB) string {
	tb.Helper()
	readme, err := proc.CheckoutFile("softdevices/" + l.Name + "/README.md")
	if err != nil {
		tb.Fatal(err)
	}
	return filepath.Dir(readme)
}

func (l *Library) file() string { return "lib" + l.Name + ".so" }

// build makes the library in bin of the checkout, once for all test binaries; where that cannot be written, in a folder
// that Main removes.
func (l *Library) build() (root string, private bool, err error) {
	script, err := proc.CheckoutFile("scripts/" + l.Name)
	if err != nil {
		return "", false, err
	}
	bin := filepath.Join(filepath.Dir(script), "..", "bin")
	if root, err := l.shared(script, bin); err == nil {
		return root, false, nil
	}
	root, err = l.buildIn("", script)
	return root, true, err
}

// shared returns the folder in bin of the library of these sources, which the first that comes builds. The others
// wait.
func (l *Library) shared(script, bin string) (string, error) {
	name, err := l.identity(script)
	if err != nil {
		return "", err
	}
	root := filepath.Join(bin, l.Name+"-"+name)
	if err := os.MkdirAll(bin, 0o777); err != nil {
		return "", err
	}
	lock, err := os.Create(filepath.Join(bin, l.Name+".lock"))
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
	made, err := l.buildIn(bin, script)
	if err == nil {
		err = os.Rename(made, root) // whole or not at all
	}
	if err != nil {
		os.RemoveAll(made)
	}
	return root, err
}

// identity is a hash of all that the library is made of.
func (l *Library) identity(script string) (string, error) {
	h := sha256.New()
	sources, err := filepath.Glob(filepath.Join(filepath.Dir(script), "..", "softdevices", l.Name, "*.*"))
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
	fmt.Fprintf(h, "%q %q", os.Getenv("CC"), os.Getenv(strings.ToUpper(l.Name)+"_CFLAGS"))
	return hex.EncodeToString(h.Sum(nil)[:8]), nil
}

// buildIn makes the library in a new folder of that one.
func (l *Library) buildIn(folder, script string) (root string, err error) {
	if root, err = os.MkdirTemp(folder, l.Name+"-"); err != nil {
		return "", err
	}
	out := filepath.Join(root, l.file())
	if text, err := exec.Command(script, out).CombinedOutput(); err != nil {
		return root, fmt.Errorf("%s: %v\n%s", script, err, text)
	}
	if err := os.Chmod(root, 0o755); err != nil { // for ranks of other users
		return root, err
	}
	if err := os.Mkdir(filepath.Join(root, "lib"), 0o755); err != nil {
		return root, err
	}
	return root, os.Symlink("../"+l.file(), filepath.Join(root, "lib", l.Alias))
}
