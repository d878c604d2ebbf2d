package leak

import (
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"time"
)

// Snapshot is what this process has at one moment. Files is 0 where the system does not list descriptors.
type Snapshot struct{ Goroutines, Files int }

// Take takes a snapshot.
func Take() Snapshot { return Snapshot{runtime.NumGoroutine(), Files()} }

// Check waits until this process has no more than at the snapshot: a goroutine that is ending may need a moment. After
// that time it returns an error, with all goroutines.
func (s Snapshot) Check(within time.Duration) error {
	for limit := time.Now().Add(within); ; time.Sleep(time.Millisecond) {
		now := Take()
		if now.Goroutines <= s.Goroutines && now.Files <= s.Files {
			return nil
		}
		if time.Now().After(limit) {
			buf := make([]byte, 1<<20)
			return fmt.Errorf("leak: %d goroutines where %d were, %d descriptors where %d were\n%s",
				now.Goroutines, s.Goroutines, now.Files, s.Files, buf[:runtime.Stack(buf, true)])
		}
	}
}

// VerifyMain runs the tests of a package, which fail if they leave a goroutine or a descriptor. It is for TestMain:
// os.Exit(leak.VerifyMain(m.Run)). A panic, such as a watchdog's, shows all goroutines.
func VerifyMain(run func() int) int {
	debug.SetTraceback("all")
	before := Take()
	code := run()
	if flag.Lookup("test.fuzz").Value.String() != "" {
		return code // package testing keeps goroutines of its own
	}
	if code == 0 {
		if err := before.Check(time.Minute); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	return code
}

// openPoller makes the runtime open the descriptors of its poller, which it keeps.
var openPoller = sync.OnceFunc(func() {
	if r, w, err := os.Pipe(); err == nil {
		r.Close()
		w.Close()
	}
})

// scratch is what the software GPU has open for each context, which lasts as long as the process.
const scratch = "/memfd:softcuda:scratch (deleted)"

// Files is the number of open descriptors. Those into /proc do not count: one is this function's own, and a library
// may keep others.
func Files() (n int) {
	openPoller()
	entries, _ := os.ReadDir("/dev/fd")
	for _, e := range entries {
		to, err := os.Readlink("/dev/fd/" + e.Name())
		if !errors.Is(err, fs.ErrNotExist) && !strings.HasPrefix(to, "/proc/") && to != scratch {
			n++
		}
	}
	return n
}
