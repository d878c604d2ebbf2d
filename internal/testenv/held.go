package testenv

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

// Held is what this process has and must give back. Files is 0 where the system does not list descriptors.
type Held struct{ Goroutines, Files int }

// Holds returns what there is now.
func Holds() Held { return Held{runtime.NumGoroutine(), Files()} }

// NoMore waits until there is no more than h, for what is ending may take a moment to have ended. After that time it
// is an error, with all goroutines.
func (h Held) NoMore(within time.Duration) error {
	for limit := time.Now().Add(within); ; time.Sleep(time.Millisecond) {
		now := Holds()
		if now.Goroutines <= h.Goroutines && now.Files <= h.Files {
			return nil
		}
		if time.Now().After(limit) {
			buf := make([]byte, 1<<20)
			return fmt.Errorf("leak: %d goroutines where %d were, %d descriptors where %d were\n%s",
				now.Goroutines, h.Goroutines, now.Files, h.Files, buf[:runtime.Stack(buf, true)])
		}
	}
}

// LeavesNothing runs the tests of a package, which fail if they leave a goroutine or a descriptor. It is for TestMain:
// os.Exit(testenv.LeavesNothing(m.Run)). A panic, as that of a watchdog, shows all goroutines.
func LeavesNothing(run func() int) int {
	debug.SetTraceback("all")
	before := Holds()
	code := run()
	if flag.Lookup("test.fuzz").Value.String() != "" {
		return code // package testing keeps goroutines of its own
	}
	if code == 0 {
		if err := before.NoMore(30 * time.Second); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	return code
}

// poller has the runtime open what it needs to wait for descriptors, which it keeps.
var poller = sync.OnceFunc(func() {
	if r, w, err := os.Pipe(); err == nil {
		r.Close()
		w.Close()
	}
})

// Files is how many descriptors are open, but for those into /proc: one is that of looking, and a library may keep such.
func Files() (n int) {
	poller()
	entries, _ := os.ReadDir("/dev/fd")
	for _, e := range entries {
		to, err := os.Readlink("/dev/fd/" + e.Name())
		if !errors.Is(err, fs.ErrNotExist) && !strings.HasPrefix(to, "/proc/") {
			n++
		}
	}
	return n
}
