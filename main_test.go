package mpi

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gorun-mpi/mpi/internal/testkit/hcakit"
	"github.com/gorun-mpi/mpi/internal/testkit/leak"
	"github.com/gorun-mpi/mpi/internal/testkit/proc"
	"github.com/gorun-mpi/mpi/transport"
	"github.com/gorun-mpi/mpi/transport/faulty"
	"github.com/gorun-mpi/mpi/transport/looptag"
)

// hangs is the time after which a test is not slow but stuck, unless it computes; stillComputes times so long in any
// case. On a virtual machine whose host has no memory at hand a page costs 17 µs, and TestHugePut needs 3 million.
const (
	hangs         = 2 * time.Minute
	stillComputes = 5
)

// roles are what a re-executed test binary can be.
var roles = map[string]func() error{}

// TestMain makes sure that no test leaves a goroutine, a descriptor or a file.
func TestMain(m *testing.M) {
	proc.RunRole(roles)
	os.Exit(leak.VerifyMain(func() int { return hcakit.Main(m) }))
}

// watchdog turns a hang into a failure that shows what every goroutine does. What it returns calls it off.
func watchdog(t testing.TB) (off func() bool) {
	var mu sync.Mutex
	mu.Lock()
	defer mu.Unlock()
	used, times := cpuTime(t), 0
	var timer *time.Timer
	timer = time.AfterFunc(hangs, func() {
		mu.Lock()
		defer mu.Unlock()
		before := used
		if used, times = cpuTime(t), times+1; times >= stillComputes || used-before < hangs/10 {
			panic(t.Name() + " hangs")
		}
		timer.Reset(hangs)
	})
	return timer.Stop
}

// reexec runs this test binary in a role, and returns what it printed.
func reexec(t *testing.T, role string, env ...string) string {
	t.Helper()
	out, err := proc.Run(t, role, env...)
	if err != nil {
		t.Fatalf("%s: %v\n%s", role, err, out)
	}
	return out
}

// runner runs a body as ranks over one of the fabrics of everywhere, and fails the test if a rank fails.
type runner func(n int, body func(w *Comm), more ...Option)

// everywhere runs a test over loop as it is, without reading of the peer's memory, over a device that matches by
// itself, and over misbehaving devices.
func everywhere(t *testing.T, test func(t *testing.T, run runner)) {
	t.Helper()
	if !inGuest() {
		t.Run("loop", func(t *testing.T) { test(t, overLoop(t)) })
		t.Run("stream", func(t *testing.T) { test(t, over(t, misbehaving(0, unreached))) })
		t.Run("tagged", func(t *testing.T) { test(t, over(t, matchingItself())) })
	}
	for _, f := range further {
		t.Run(f.name, func(t *testing.T) { test(t, over(t, f.option(t))) })
	}
	if inGuest() {
		return // what follows does not need a device
	}
	for _, seed := range faultySeeds(t.Name()) {
		t.Run(fmt.Sprintf("faulty-%d", seed), func(t *testing.T) {
			plan := faulty.Random(seed)
			faulty.Explain(t, seed, plan)
			test(t, over(t, misbehaving(seed, plan)))
		})
	}
}

// matchedBelow: a library below this one matches the messages of this test. It keeps late ones, has no limit, and may
// not take a send back.
func matchedBelow(t *testing.T) bool {
	return strings.HasSuffix(t.Name(), "/tagged") || sendsStay(t)
}

// sendsStay: that library is UCX or libfabric, which take no send back.
func sendsStay(t *testing.T) bool {
	return strings.HasSuffix(t.Name(), "/ucx") || strings.HasSuffix(t.Name(), "/ofi")
}

// faultySeeds are four, or with -short one of them, which depends on the test.
func faultySeeds(test string) []int64 {
	if testing.Short() {
		return []int64{int64(crc32.ChecksumIEEE([]byte(test)) % 4)}
	}
	return []int64{0, 1, 2, 3}
}

// inGuest: this is a virtual machine with soft-RoCE (scripts/guest), where there is little time.
func inGuest() bool { return os.Getenv("GORUN_TEST_GUEST") != "" }

// fabric is a way to connect the ranks of RunLocal.
type fabric struct {
	name   string
	option func(testing.TB) Option
}

// Beneath is what the ranks of a test go over that does not say so itself: loop, UCX or libfabric (ucx_tag_test.go,
// ofi_tag_test.go).
var Beneath = func() []Option { return nil }

// withDevices puts something between the engines and their transport, or another device in its place.
func withDevices(wrap func(rank int, d transport.Device) transport.Device) Option {
	return func(o *options) { o.Wrap = wrap }
}

// onTop puts something between the engines and the devices that the options before this one have made.
func onTop(wrap func(rank int, d transport.Device) transport.Device) Option {
	return func(o *options) {
		was := o.Wrap
		o.Wrap = func(rank int, d transport.Device) transport.Device {
			if was != nil {
				d = was(rank, d)
			}
			return wrap(rank, d)
		}
	}
}

// onHosts says where ranks are, by any numbers.
func onHosts(at func(rank int) int) Option { return func(o *options) { o.Host = at } }

func misbehaving(seed int64, plan faulty.Plan) Option {
	return withDevices(func(rank int, d transport.Device) transport.Device {
		return faulty.Wrap(d, seed*1000+int64(rank), plan)
	})
}

// matchingItself connects the ranks by a device that does all matching. It is busy now and then.
func matchingItself() Option {
	var fabric *looptag.Fabric
	return withDevices(func(rank int, d transport.Device) transport.Device {
		d.Close()
		if rank == 0 { // the first of a job
			fabric = looptag.New(5)
		}
		return fabric.Device(rank)
	})
}

func over(t *testing.T, opts ...Option) runner {
	return func(n int, body func(w *Comm), more ...Option) {
		t.Helper()
		if err := local(t, n, body, append(opts, more...)...); err != nil {
			t.Fatal(err)
		}
	}
}

// withBoards changes each board that a rank makes or joins.
func withBoards(change func(rank int, b *transport.Board)) Option {
	return onTop(func(rank int, d transport.Device) transport.Device {
		is := *d.Facts().Boards
		d.Facts().Boards = &transport.Boards{
			Make: func(m []int32, lines, bytes int) (*transport.Board, []byte, error) {
				b, ticket, err := is.Make(m, lines, bytes)
				if err == nil {
					change(rank, b)
				}
				return b, ticket, err
			},
			Join: func(m []int32, lines, bytes int, ticket []byte) (*transport.Board, error) {
				b, err := is.Join(m, lines, bytes, ticket)
				if err == nil {
					change(rank, b)
				}
				return b, err
			},
		}
		return d
	})
}

// loopBeneath and overLoop are for tests of what is so over loop, whatever Beneath is: of links and what is counted of
// them, of memory that ranks have in common, of engines whose end the others see (UCX sees that of processes), of
// numbers of communicators that are used again.
var loopBeneath = withDevices(nil)

func overLoop(t *testing.T, opts ...Option) runner {
	return over(t, append([]Option{loopBeneath}, opts...)...)
}

// local is RunLocal with a watchdog. A body complains by panicking, for which must and check are there: the error says
// which lines of the test that was. It is logged at once, since another rank may wait for this one outside the library.
func local(t *testing.T, n int, body func(w *Comm), opts ...Option) error {
	defer watchdog(t)()
	opts = append(Beneath(), opts...)
	return RunLocal(n, func(w *Comm) (err error) {
		defer func() {
			if p := recover(); p != nil {
				err = fmt.Errorf("%s: %v", testLines(), p)
				fmt.Fprintf(os.Stderr, "%s: rank %d: %v\n", t.Name(), w.Rank(), err)
			}
		}()
		body(w)
		return nil
	}, opts...)
}

// testLines is where in this package's tests a panic came from, but for the helpers of this file.
func testLines() string {
	var lines []string
	pcs := make([]uintptr, 50)
	frames := runtime.CallersFrames(pcs[:runtime.Callers(2, pcs)])
	for f, more := frames.Next(); more; f, more = frames.Next() {
		name := filepath.Base(f.File)
		inTest := strings.HasSuffix(name, "_test.go") && name != "main_test.go"
		if inTest || strings.Contains(f.File, "runtime/signal") {
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

// is checks the class of an error.
func is(err, class error) {
	var e *Error
	check(errors.Is(err, class), "the error is %v, not of class %v", err, class)
	check(errors.As(err, &e), "the error is a %T, not an *Error: %v", err, err)
}

// inShort is how many turns a test takes: enough, or with -short only some.
func inShort(enough, some int) int {
	if testing.Short() {
		return some
	}
	return enough
}

// same fails unless got is want.
func same[T comparable](got, want T) {
	check(got == want, "got %+v, want %+v", got, want)
}

// Sizes in bytes that go eagerly and by rendezvous over loop.
const (
	short = 100
	long  = 300_000
)

// noise is random bytes; messages are pieces of it.
var noise = func() []byte {
	b := make([]byte, 8<<20+1<<16)
	rand.NewChaCha8([32]byte{}).Read(b)
	return b
}()

// message is a buffer whose contents depend on n and its length.
func message(size, n int) []byte { return bytes.Clone(expected(size, n)) }

func expected(size, n int) []byte {
	from := (n*131 + size) % (1 << 16)
	return noise[from : from+size]
}

// whole checks that buf is message(len(buf), n).
func whole(buf []byte, n int) {
	want := expected(len(buf), n)
	if bytes.Equal(buf, want) {
		return
	}
	for i := range buf {
		check(buf[i] == want[i], "message %d of %d bytes: byte %d is %#x, not %#x", n, len(buf), i, buf[i], want[i])
	}
}

const tagSignal = MaxTag // of messages that order what the ranks do, and are not what is tested

// sendSignal and awaitSignal order what two ranks do, by a message without payload.
func sendSignal(w *Comm, rank int)  { must(Send[byte](w, nil, rank, tagSignal)) }
func awaitSignal(w *Comm, rank int) { ok(Recv[byte](w, nil, rank, tagSignal)) }

// exchangeSignals returns when all earlier messages of w to rank have arrived there, and time has passed for answers.
func exchangeSignals(w *Comm, rank int) {
	for range 10 {
		sendSignal(w, rank)
		awaitSignal(w, rank)
	}
}

// echoSignals is the other side of exchangeSignals.
func echoSignals(w *Comm, rank int) {
	for range 10 {
		awaitSignal(w, rank)
		sendSignal(w, rank)
	}
}

// finished reports whether r is complete, and checks that it went well.
func finished(r *Request) bool {
	done, _, err := r.Test()
	must(err)
	return done
}

func newRand(seed, stream uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, stream)) }

// reexecFails is reexec for a role that is expected to end with an error.
func reexecFails(t *testing.T, role string, env ...string) (output string, code int) {
	t.Helper()
	out, err := proc.Run(t, role, env...)
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		t.Fatalf("%s: %v\n%s", role, err, out)
	}
	return out, exit.ExitCode()
}

// lookAlike is a communicator of all ranks that no agreement has made.
func lookAlike(w *Comm, name string, number uint32) *Comm {
	s := &commState{}
	w.group.Derive(&s.group, w.group.Members(), number)
	s.group.SetName(name)
	return &Comm{commState: s}
}
