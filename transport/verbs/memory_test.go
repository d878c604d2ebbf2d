//go:build verbs && linux && cgo

package verbs

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gorun-mpi/mpi/internal/testkit/proc"
	"github.com/gorun-mpi/mpi/transport"
)

// The length from which on memory is registered, from what was measured.
func TestCrossing(t *testing.T) {
	us := func(a, b float64) [2]time.Duration {
		return [2]time.Duration{time.Duration(a * 1000), time.Duration(b * 1000)}
	}
	for _, c := range []struct {
		what           string
		register, move [2]time.Duration // of 32 KiB and of 512 KiB
		want           int
	}{
		{"registering is cheaper at once", us(2, 3), us(4, 64), registerLeast},
		{"as dear at once", us(4, 4), us(4, 64), registerLeast},
		{"60 µs and 27 GB/s against 10 GB/s", us(61.2, 79.4), us(3.2, 52.4), 1 << 20},
		{"between the two", us(20, 22), us(4, 64), 256 << 10},
		{"costs that do not depend on the length", us(20, 20), us(4, 64), 256 << 10},
		{"never", us(20, 100), us(4, 64), registerMost},
		{"never, as both grow alike", us(20, 80), us(4, 64), registerMost},
		{"far away", us(2000, 2030), us(4, 64), registerMost},
		{"a clock that stood still", us(0, 0), us(0, 0), registerLeast},
		{"a clock that went backwards", us(5, -5), us(4, 64), 64 << 10},
	} {
		if got := crossing(c.register, c.move); got != c.want {
			t.Errorf("%s: from %d, want %d", c.what, got, c.want)
		}
	}
}

// What was measured is within its bounds, is printed, and leaves nothing.
func TestMeasure(t *testing.T) {
	watchdog(t)
	var log notes
	e := newEnd(t, 0, 1, func(o *Options) { o.RegisterFrom, o.Debug = 0, log.log })
	from := e.opt.RegisterFrom
	if from < registerLeast || from > registerMost || from&(from-1) != 0 {
		t.Errorf("registering from %d bytes on", from)
	}
	for _, line := range []string{"verbs device ", "verbs: what registering costs "} {
		if said := log.with(line); len(said) != 1 || !strings.Contains(said[0], fmt.Sprint("register-from ", from)) {
			t.Errorf("%s: %q; want register-from %d", line, said, from)
		}
	}
	t.Log(log.with("what registering costs"))
	if n := len(e.regs.advertised); n != 0 || e.stats.Registered < 2 || e.stats.Registered > 2*measureRounds {
		t.Errorf("%d registrations, and %d are advertised", e.stats.Registered, n)
	}
	if n, err := e.hca.counter("mrs"); err == nil && n != 3 {
		t.Errorf("%d regions, want 3: of the two slabs and of the probes", n)
	}
	if got := newEnd(t, 0, 1, func(o *Options) { o.RegisterFrom = 12345 }); got.opt.RegisterFrom != 12345 ||
		got.stats.Registered != 0 {
		t.Errorf("from %d, %d registrations; 12345 was asked for, so there is nothing to measure",
			got.opt.RegisterFrom, got.stats.Registered)
	}
}

// Nothing but the slabs may be registered: the device works, says why, once, and memory is not advertised to peers.
func TestNothingToRegister(t *testing.T) {
	watchdog(t)
	needSoft(t)
	e := newEnd(t, 0, 1)
	slabs := e.counted("mr_bytes")
	e.Close()
	t.Setenv("SOFTHCA_MEMLOCK", fmt.Sprint(slabs))
	var log notes
	a, _, ab, _ := two(t, func(o *Options) { o.RegisterFrom, o.Log = 0, log.log })
	if a.opt.RegisterFrom != registerMost {
		t.Errorf("registering from %d bytes on", a.opt.RegisterFrom)
	}
	for range 3 {
		if _, _, ok := ab.caps.RMA.Register(transport.HostMem(make([]byte, registerMost)), transport.Readable); ok {
			t.Error("memory was registered")
		}
	}
	if said := log.with("could not be registered"); len(said) != 2 { // of the two devices
		t.Errorf("it was said %d times: %q", len(said), said)
	}
	if _, err := a.facts.Memory.Alloc(1 << 20); !errors.Is(err, unix.ENOMEM) {
		t.Errorf("Alloc: %v", err)
	}
	if len(a.regs.spare) != 1 {
		t.Errorf("%d spare records of 4 tries", len(a.regs.spare))
	}
}

const unprivileged = 65534

// memlockVar makes the test binary be TestMemlock's child. Its value is the hard limit in KiB.
const memlockVar = "GORUN_TEST_VERBS_MEMLOCK"

var childLimits = []uint64{1 << 10, 4 << 10}

// TestMemlock checks that a process that may lock little gets what the administrator allows it, is told what to write
// and where if it is not enough, and goes on if it can be done with less.
func TestMemlock(t *testing.T) {
	if os.Getenv(memlockVar) != "" {
		memlockChild(t)
		return
	}
	if os.Geteuid() != 0 {
		t.Skip("needs root, to give up what root may")
	}
	for _, kib := range childLimits {
		dir, err := os.MkdirTemp("", "memlock-")
		if err != nil {
			t.Fatal(err)
		}
		defer os.RemoveAll(dir)
		if err := os.Chown(dir, unprivileged, unprivileged); err != nil {
			t.Fatal(err)
		}
		out, err := proc.RerunTest(t, append(sameLibrary(t), fmt.Sprint(memlockVar, "=", kib), "SOFTHCA_DIR="+dir,
			fmt.Sprint("SOFTHCA_MEMLOCK=", kib<<10))...)
		if err != nil || !strings.Contains(out, "uid 65534") {
			t.Errorf("with %d KiB: %v\n%s", kib, err, out)
		}
	}
}

func memlockChild(t *testing.T) {
	path, _ := library(t)
	if err := load(path); err != nil { // while its folder may be read
		t.Fatal(err)
	}
	var kib uint64
	fmt.Sscan(os.Getenv(memlockVar), &kib)

	if err := unix.Setrlimit(unix.RLIMIT_MEMLOCK, &unix.Rlimit{Cur: 64 << 10, Max: kib << 10}); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Setuid(unprivileged); err != nil {
		t.Fatal(err)
	}
	fmt.Println("uid", os.Getuid())

	d, err := New(options(t, 0, 1, func(msg string, args ...any) { t.Log(append([]any{msg}, args...)...) }))
	var l unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_MEMLOCK, &l); err != nil || l.Cur != kib<<10 || l.Max != kib<<10 {
		t.Errorf("the limit is %d of %d, %v; want all of %d KiB", l.Cur, l.Max, err, kib)
	}
	checkAdvice(t, explainMemlock(fmt.Errorf("registering: %w", unix.ENOMEM)), kib)
	checkAdvice(t, explainMemlock(unix.EPERM), kib)
	if err := explainLimit(unix.ENOMEM, unix.RLIM_INFINITY); err != unix.ENOMEM {
		t.Errorf("there is no limit, and the advice is %v", err)
	}
	if err := explainMemlock(unix.EINVAL); err != unix.EINVAL {
		t.Errorf("that has nothing to do with the limit: %v", err)
	}
	if kib == childLimits[0] {
		if err == nil {
			t.Error("a device with 1 MiB in all")
		}
		checkAdvice(t, err, kib)
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if n := d.(*Device).recv.count; n >= receives || n < leastBuffer {
		t.Errorf("%d receive buffers with %d KiB", n, kib)
	}
}

// checkAdvice checks that an error says how much may be locked, and the line that is to be written.
func checkAdvice(t *testing.T, err error, kib uint64) {
	t.Helper()
	if err == nil {
		t.Error("no error")
		return
	}
	for _, part := range []string{fmt.Sprint(kib, " KiB"), "ulimit -l", `"* - memlock unlimited"`,
		"/etc/security/limits.d/", "LimitMEMLOCK=infinity"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q does not say %s", err, part)
		}
	}
	if !errors.Is(err, unix.ENOMEM) && !errors.Is(err, unix.EPERM) {
		t.Errorf("%v: not the error that it was", err)
	}
}

// Close ends the registrations of receives that the device was to match and of a message that was advertised to a
// peer: what is left pinned ends the program at the next collection.
func TestCloseUnpins(t *testing.T) {
	watchdog(t)
	needSoft(t)
	for _, n := range []int{0, 8} {
		t.Run(fmt.Sprint("cache ", n), func(t *testing.T) {
			a, _, ab, _ := two(t, caching(n), tagsOn)
			register(t, ab, make([]byte, 1<<20))
			if did := a.facts.Offload.Post(5, ^uint64(0), transport.HostMem(make([]byte, 1<<20)),
				7); did != transport.PostedDown {
				t.Fatal("not posted: ", did)
			}
		})
		for range 5 { // the devices are closed, and garbage
			runtime.GC()
			time.Sleep(time.Millisecond) // for finalizers
		}
	}
}
