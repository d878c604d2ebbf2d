package pml

import (
	"flag"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"testing"
	"time"
)

// hangs is after how long a test is not slow but stuck.
const hangs = 30 * time.Second

func TestMain(m *testing.M) {
	debug.SetTraceback("all")
	before := runtime.NumGoroutine()
	code := m.Run()
	if fuzzing := flag.Lookup("test.fuzz").Value.String() != ""; code == 0 && !fuzzing { // which keeps goroutines of its own
		code = leaks(before)
	}
	os.Exit(code)
}

// leaks reports goroutines that are left over after all tests.
func leaks(before int) int {
	for limit := time.Now().Add(5 * time.Second); runtime.NumGoroutine() > before; time.Sleep(time.Millisecond) {
		if time.Now().After(limit) {
			buf := make([]byte, 1<<20)
			fmt.Fprintf(os.Stderr, "leak: %d goroutines where %d were\n%s\n", runtime.NumGoroutine(), before, buf[:runtime.Stack(buf, true)])
			return 1
		}
	}
	return 0
}

// watchdog turns a hang into a failure that shows what every goroutine does.
func watchdog(t testing.TB) {
	name := t.Name()
	timer := time.AfterFunc(hangs, func() { panic(name + " hangs") })
	t.Cleanup(func() { timer.Stop() })
}
