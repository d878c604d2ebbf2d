package gpu

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/gorun-mpi/mpi"
	"github.com/gorun-mpi/mpi/accel"
	"github.com/gorun-mpi/mpi/accel/acceltest"
	"github.com/gorun-mpi/mpi/internal/join"
	"github.com/gorun-mpi/mpi/internal/testkit/leak"
	"github.com/gorun-mpi/mpi/internal/testkit/proc"
	"github.com/gorun-mpi/mpi/transport"
	"github.com/gorun-mpi/mpi/transport/looptag"
)

// hangs is the time after which a test is not slow but stuck.
const hangs = 2 * time.Minute

// roles are what a re-executed test binary can be.
var roles = map[string]func() error{}

// runTests runs the tests.
var runTests = (*testing.M).Run

func TestMain(m *testing.M) {
	proc.RunRole(roles)
	accel.Use(forExamples)
	os.Exit(leak.VerifyMain(func() int { return runTests(m) }))
}

// forExamples is the driver of examples, which show no test kit.
var forExamples = acceltest.New(acceltest.Options{Devices: 2}).Process()

// newMachine returns a machine, of which nothing may be left when the test ends.
func newMachine(t testing.TB, o acceltest.Options) *acceltest.Machine {
	m := acceltest.New(o)
	t.Cleanup(func() {
		drain()
		if left := m.Left(); left != "" {
			t.Errorf("left:\n%s", left)
		}
	})
	return m
}

// useDriver makes d the driver of this process until the test ends.
func useDriver(t testing.TB, d accel.Driver) {
	accel.Use(d)
	t.Cleanup(func() { accel.Use(forExamples) })
}

// useMachine makes a process of a new machine the driver of this one.
func useMachine(t testing.TB, o acceltest.Options) *acceltest.Process {
	p := newMachine(t, o).Process()
	useDriver(t, p)
	return p
}

// drain unpins what is kept.
func drain() {
	stages.mu.Lock()
	defer stages.mu.Unlock()
	for len(stages.idle) > 0 {
		dropStage(0)
	}
}

// rank is a rank of a test, with the driver that its memory is of.
type rank struct {
	*mpi.Comm
	d      *acceltest.Process
	device int
}

// way is where the memory of the ranks lies.
type way struct {
	name    string
	options acceltest.Options
	own     bool // a driver for each rank, as if each was a process
	hosts   int  // so many have the ranks by turns, each with a machine of its own; 0: one
	whole   bool // messages go over a library that matches by itself
}

var ways = []way{
	{name: "one driver", options: acceltest.Options{Devices: 2, Seed: 1, Delay: 200 * time.Microsecond}},
	{name: "shared", own: true, options: acceltest.Options{Devices: 1, Seed: 2, Delay: 200 * time.Microsecond}},
	{name: "two devices", own: true, options: acceltest.Options{Devices: 2, Seed: 3, Delay: 100 * time.Microsecond}},
	{name: "staged", own: true, options: acceltest.Options{Devices: 2, Seed: 4, Delay: 100 * time.Microsecond, NotShared: true}},
	{name: "two hosts", own: true, hosts: 2,
		options: acceltest.Options{Devices: 2, Seed: 6, Delay: 100 * time.Microsecond}},
}

// host is where a rank is.
func (w way) host(rank int) int { return rank % max(w.hosts, 1) }

// apart is the device of a rank, whose links say which ranks are of another host.
func (w way) apart(rank int, d transport.Device) transport.Device {
	if w.hosts == 0 {
		return d
	}
	facts := *d.Facts()
	facts.ConnectNow = nil // each link is made by Connect
	return &apartDevice{d, w, rank, &facts}
}

type apartDevice struct {
	transport.Device
	w     way
	rank  int
	facts *transport.Facts
}

func (d *apartDevice) Facts() *transport.Facts { return d.facts }

func (d *apartDevice) Connect(ctx context.Context, peer int, address []byte) (transport.Link, error) {
	l, err := d.Device.Connect(ctx, peer, address)
	if err != nil || d.w.host(peer) == d.w.host(d.rank) {
		return l, err
	}
	caps := *l.Caps()
	caps.SameHost = false
	return &apartLink{l, &caps}, nil
}

type apartLink struct {
	transport.Link
	caps *transport.Caps
}

func (l *apartLink) Caps() *transport.Caps { return l.caps }

// drivers are the drivers of n ranks. machine makes a host's.
func (w way) drivers(n int, machine func(acceltest.Options) *acceltest.Machine) (all []*acceltest.Process) {
	var machines []*acceltest.Machine
	for rank := range n {
		host := w.host(rank)
		if host == len(machines) {
			machines = append(machines, machine(w.options))
		}
		if rank > 0 && !w.own {
			all = append(all, all[0])
		} else {
			all = append(all, machines[host].Process())
		}
	}
	return all
}

// everyWay runs a body as n ranks in all ways.
func everyWay(t *testing.T, n int, body func(r rank)) {
	for _, w := range ways {
		w.test(t, n, body)
	}
}

// alsoWhole is everyWay for messages: they go over a library that matches by itself, too.
func alsoWhole(t *testing.T, n int, body func(r rank)) {
	everyWay(t, n, body)
	way{name: "whole", own: true, whole: true,
		options: acceltest.Options{Devices: 2, Seed: 5, Delay: 100 * time.Microsecond}}.test(t, n, body)
}

// test runs a body as n ranks.
func (w way) test(t *testing.T, n int, body func(r rank)) {
	t.Run(w.name, func(t *testing.T) {
		drivers := w.drivers(n, func(o acceltest.Options) *acceltest.Machine { return newMachine(t, o) })
		useDriver(t, drivers[0])
		options := []mpi.Option{func(o *join.Options) { o.Host, o.Wrap = w.host, w.apart }}
		if fabric := looptag.New(6); w.whole {
			options = append(options, func(o *join.Options) {
				o.Wrap = func(rank int, d transport.Device) transport.Device {
					d.Close()
					return fabric.Device(rank)
				}
			})
		}
		run(t, n, func(c *mpi.Comm) {
			body(rank{c, drivers[c.Rank()], c.Rank() % max(w.options.Devices, 1)})
		}, options...)
	})
}

// run is RunLocal with a watchdog. A body complains by panicking.
func run(t *testing.T, n int, body func(c *mpi.Comm), options ...mpi.Option) {
	t.Helper()
	defer time.AfterFunc(hangs, func() { panic(t.Name() + " hangs") }).Stop()
	if err := mpi.RunLocal(n, func(w *mpi.Comm) (err error) {
		defer func() {
			if p := recover(); p != nil {
				err = fmt.Errorf("%s: %v", testLines(), p)
				fmt.Fprintf(os.Stderr, "%s: rank %d: %v\n", t.Name(), w.Rank(), err)
			}
		}()
		body(w)
		return nil
	}, options...); err != nil {
		t.Fatal(err)
	}
}

// testLines is where in this package's tests a panic came from, but for the helpers of this file.
func testLines() string {
	var lines []string
	pcs := make([]uintptr, 50)
	frames := runtime.CallersFrames(pcs[:runtime.Callers(2, pcs)])
	for f, more := frames.Next(); more; f, more = frames.Next() {
		if name := filepath.Base(f.File); strings.HasSuffix(name, "_test.go") && name != "main_test.go" {
			lines = append(lines, fmt.Sprintf("%s:%d", name, f.Line))
		}
	}
	return strings.Join(lines, " ")
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

// ok drops the result of a call that must succeed.
func ok[T any](v T, err error) T {
	must(err)
	return v
}

func check(cond bool, format string, args ...any) {
	if !cond {
		panic(fmt.Errorf(format, args...))
	}
}

// isError checks the class of an error and part of its text.
func isError(err, class error, text string) {
	var e *mpi.Error
	check(errors.Is(err, class), "the error is %v, not of class %v", err, class)
	check(errors.As(err, &e), "the error is a %T, not an *Error: %v", err, err)
	check(strings.Contains(err.Error(), text), "the error is %v, without %q", err, text)
}

// make makes a slice of n elements in the memory of the rank's driver.
func alloc[T any](r rank, n int) Slice[T] {
	size := ok(sizeOf[T]("test", n))
	if size == 0 {
		return Slice[T]{of: &allocation{}, n: n}
	}
	return ok(allocOn[T](r.d, r.device, n, size))
}

// of makes a slice with these elements.
func of[T any](r rank, host []T) Slice[T] {
	s := alloc[T](r, len(host))
	must(s.CopyFrom(host))
	return s
}

// contents are the elements on the device, as a kernel sees them now.
func contents[T any](r rank, s Slice[T]) []byte {
	b, bad := s.buffer()
	check(bad == nil, "%v", bad)
	if b.Len == 0 {
		return nil
	}
	return r.d.Read(b.Addr, b.Len)
}

func free[T any](all ...Slice[T]) {
	for _, s := range all {
		must(s.Free())
	}
}

// message is bytes that depend on n and their number.
func message(size, n int) []byte {
	b := make([]byte, size)
	rand.NewChaCha8([32]byte{byte(n), byte(n >> 8), byte(size)}).Read(b)
	return b
}

func same(got, want []byte) {
	if bytes.Equal(got, want) {
		return
	}
	check(len(got) == len(want), "%d bytes, want %d", len(got), len(want))
	for i := range got {
		check(got[i] == want[i], "byte %d of %d is %#x, not %#x", i, len(got), got[i], want[i])
	}
}

// lengths are of messages: none, one, odd, eager, long, and of more than one piece.
func lengths() []int {
	if testing.Short() {
		return []int{0, 1, 333, 300_001}
	}
	return []int{0, 1, 333, 5_000, 65_537, 300_001, 5<<20 + 7}
}
