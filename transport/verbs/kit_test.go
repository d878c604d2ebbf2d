//go:build verbs && linux && cgo

package verbs

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gorun-mpi/mpi/internal/eventset"
	"github.com/gorun-mpi/mpi/internal/testkit/hcakit"
	"github.com/gorun-mpi/mpi/internal/testkit/leak"
	"github.com/gorun-mpi/mpi/internal/testkit/proc"
	"github.com/gorun-mpi/mpi/internal/wire"
	"github.com/gorun-mpi/mpi/transport"
	"github.com/gorun-mpi/mpi/transport/tcp"
)

// patience is after how long something will not happen any more. In a guest all of the processor is emulated.
const patience = time.Minute

// shortPatience is how long devices of tests send again what nothing answers.
const shortPatience = 7 * time.Second

// roles are what the test binary can be in a process of its own.
var roles = map[string]func() error{}

// TestMain makes sure that no test leaves a goroutine or a descriptor.
func TestMain(m *testing.M) {
	proc.RunRole(roles)
	os.Exit(leak.VerifyMain(func() int { return run(m) }))
}

func run(m *testing.M) int {
	// The software HCA has one fabric per process, and other tests of this machine have theirs.
	if os.Getenv("SOFTHCA_DIR") == "" {
		dir, err := os.MkdirTemp("", "verbs-")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer os.RemoveAll(dir)
		os.Setenv("SOFTHCA_DIR", dir)
	}
	return hcakit.Main(m)
}

// inGuest reports whether this process runs in a guest of scripts/guest, where rxe0 must be.
func inGuest() bool { return os.Getenv("GUEST_HOST") != "" }

// library is that of the tests, and which of its devices they use: what GORUN_VERBS_LIB names, in a guest the system's
// and rxe0, else the software HCA.
func library(t testing.TB) (path, devices string) {
	t.Helper()
	switch path := os.Getenv("GORUN_VERBS_LIB"); {
	case path != "":
		return path, os.Getenv("GORUN_VERBS_DEV")
	case inGuest():
		return "", "rxe0"
	}
	return hcakit.Build(t), ""
}

// needSoft is for tests that need what only the software HCA can: knobs, counters, injected faults.
func needSoft(t testing.TB) {
	t.Helper()
	if inGuest() {
		t.Skip("needs the software HCA: a real device has no such knob")
	}
	if !soft(t) {
		t.Skip("needs the software HCA, and GORUN_VERBS_LIB names another library")
	}
}

// soft reports whether the device is the software HCA.
func soft(t testing.TB) bool {
	t.Helper()
	path, _ := library(t)
	if err := load(path); err != nil {
		t.Fatal(err)
	}
	h, err := open("softhca0", "/")
	if err == nil {
		h.close()
	}
	return err == nil
}

// sameLibrary is the environment in which another process of this test binary uses the same devices.
func sameLibrary(t testing.TB) []string {
	t.Helper()
	path, devices := library(t)
	return []string{"GORUN_VERBS_LIB=" + path, "GORUN_VERBS_DEV=" + devices}
}

func options(t testing.TB, rank, size int, log func(msg string, args ...any)) Options {
	path, devices := library(t)
	return Options{Rank: rank, Size: size, Library: path, Devices: devices, RegisterFrom: 1, Tags: "off", Log: log,
		Debug: log, Control: control(log), patience: shortPatience, tails: patience}
}

func control(log func(msg string, args ...any)) tcp.Options {
	return tcp.Options{Job: "test", PeerTimeout: patience, Log: log,
		Secret: func() ([]byte, error) { return []byte("the secret of this test, 32 bytes"), nil }}
}

func newDevice(t testing.TB, rank, size int, change ...func(*Options)) *Device {
	t.Helper()
	opt := options(t, rank, size, func(msg string, args ...any) { t.Log(append([]any{rank, msg}, args...)...) })
	for _, f := range change {
		f(&opt)
	}
	d, err := New(opt)
	if err != nil {
		t.Fatal(err)
	}
	return d.(*Device)
}

// notes are what a device has logged.
type notes struct {
	mu   sync.Mutex
	text []string
}

func (n *notes) option(o *Options) { o.Log = n.log }

func (n *notes) log(msg string, args ...any) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.text = append(n.text, fmt.Sprintln(append([]any{msg}, args...)...))
}

// with are those that contain a text.
func (n *notes) with(text string) (found []string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, s := range n.text {
		if strings.Contains(s, text) {
			found = append(found, s)
		}
	}
	return found
}

func watchdog(t testing.TB) { proc.PanicAfter(t, 3*patience) }

// end is a device with what it has polled.
type end struct {
	*Device
	t    testing.TB
	rank int
	pkts [32]transport.Packet
	in   []transport.Packet // payloads copied
}

func newEnd(t testing.TB, rank, size int, change ...func(*Options)) *end {
	t.Helper()
	d := newDevice(t, rank, size, change...)
	t.Cleanup(func() { d.Close() })
	return &end{Device: d, t: t, rank: rank}
}

// sleep is where this end sleeps.
func (e *end) sleep() *eventset.Set {
	e.t.Helper()
	s, err := eventset.New(e.Device)
	if err != nil {
		e.t.Fatal(err)
	}
	e.t.Cleanup(s.Close)
	return s
}

// two are connected ends and their links.
func two(t testing.TB, change ...func(*Options)) (a, b *end, ab, ba *link) {
	t.Helper()
	a, b = newEnd(t, 0, 2, change...), newEnd(t, 1, 2, change...)
	return a, b, a.link(b), b.link(a)
}

func (e *end) link(to *end) *link {
	e.t.Helper()
	return e.linkTo(to.rank, to.Address())
}

func (e *end) linkTo(rank int, address []byte) *link {
	e.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	l, err := e.Connect(ctx, rank, address)
	if err != nil {
		e.t.Fatal(err)
	}
	return l.(*link)
}

func (e *end) poll() int {
	n := e.Poll(e.pkts[:])
	for _, p := range e.pkts[:n] {
		p.Payload = bytes.Clone(p.Payload)
		e.in = append(e.in, p)
	}
	return n
}

// until polls until ok. The others are polled too.
func (e *end) until(what string, ok func() bool, others ...*end) {
	e.t.Helper()
	for limit := time.Now().Add(patience); !ok(); {
		n := e.poll()
		for _, o := range others {
			n += o.poll()
		}
		if n == 0 {
			runtime.Gosched()
		}
		if time.Now().After(limit) {
			e.t.Fatalf("rank %d: %s does not come; %d packets have", e.rank, what, len(e.in))
		}
	}
}

// take returns the next packet of that event, and checks that it is the next of all.
func (e *end) take(event transport.Event) transport.Packet {
	e.t.Helper()
	e.until(fmt.Sprintf("event %d", event), func() bool { return len(e.in) > 0 })
	p := e.in[0]
	e.in = e.in[1:]
	if p.Event != event {
		e.t.Fatalf("rank %d: event %d (%+v, %v), want %d", e.rank, p.Event, p.Header, p.Err, event)
	}
	return p
}

// down takes Down of a peer, and nothing else comes.
func (e *end) down(peer int) error {
	e.t.Helper()
	p := e.take(transport.Down)
	if int(p.Peer) != peer || !errors.Is(p.Err, transport.ErrPeerGone) {
		e.t.Errorf("rank %d: Down of rank %d, %v; want rank %d and ErrPeerGone", e.rank, p.Peer, p.Err, peer)
	}
	e.noPackets()
	return p.Err
}

// noPackets polls for a while in which nothing may come.
func (e *end) noPackets() {
	e.t.Helper()
	for until := time.Now().Add(20 * time.Millisecond); time.Now().Before(until); runtime.Gosched() {
		if e.poll(); len(e.in) > 0 {
			e.t.Fatalf("rank %d: event %d, %+v, %v, which was not asked for", e.rank, e.in[0].Event, e.in[0].Header, e.in[0].Err)
		}
	}
}

// counted is a counter of the software HCA.
func (e *end) counted(name string) uint64 {
	e.t.Helper()
	n, err := e.hca.counter(name)
	if err != nil {
		e.t.Fatal(err)
	}
	return n
}

func (e *end) injected(what string) {
	e.t.Helper()
	if err := e.hca.inject(what); err != nil {
		e.t.Fatal(err)
	}
}

// send sends, and polls the others as long as there is no room.
func send(t testing.TB, l *link, h wire.Header, payload []byte, others ...*end) {
	t.Helper()
	for limit := time.Now().Add(patience); !l.TrySend(&h, payload); {
		for _, o := range others {
			o.poll()
		}
		if time.Now().After(limit) {
			t.Fatalf("no room for %v of %d bytes", h.Kind, len(payload))
		}
	}
}

// talk checks that a packet goes from a to b over l.
func talk(l *link, b *end) {
	b.t.Helper()
	send(b.t, l, wire.Header{Kind: wire.Eager, Tag: 77}, []byte("still here"), b)
	if p := b.take(transport.Arrived); int(p.Peer) != l.s.d.opt.Rank || string(p.Payload) != "still here" {
		b.t.Errorf("%+v", p)
	}
}

// fill writes bytes that differ from one seed to another and from one place to another.
func fill(b []byte, seed uint64) []byte {
	rng := rand.New(rand.NewPCG(seed, 1))
	var word [8]byte
	for i := 0; i < len(b); i += len(word) {
		binary.LittleEndian.PutUint64(word[:], rng.Uint64())
		copy(b[i:], word[:])
	}
	return b
}

func pattern(n int, seed uint64) []byte { return fill(make([]byte, n), seed) }

// start starts a role in a process of its own.
func start(t testing.TB, role string, env ...string) *proc.Process {
	t.Helper()
	return proc.Start(t, role, append(sameLibrary(t), env...)...)
}

// roleDevice is the device of an other: rank 1 of 2. It says its address and connects to the one that it is told.
func roleDevice(change ...func(*Options)) (*Device, *link, error) {
	opt := Options{Rank: 1, Size: 2, Library: os.Getenv("GORUN_VERBS_LIB"), Devices: os.Getenv("GORUN_VERBS_DEV"),
		RegisterFrom: 1, Tags: "on", Control: control(nil)}
	for _, f := range change {
		f(&opt)
	}
	d, err := New(opt)
	if err != nil {
		return nil, nil, err
	}
	proc.Send(d.Address())
	address, err := proc.Recv()
	if err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	l, err := d.Connect(ctx, 0, address)
	if err != nil {
		return nil, nil, err
	}
	return d.(*Device), l.(*link), nil
}
