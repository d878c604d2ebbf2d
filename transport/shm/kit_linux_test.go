package shm

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gorun-mpi/mpi/internal/auth"
	"github.com/gorun-mpi/mpi/internal/ring"
	"github.com/gorun-mpi/mpi/internal/testkit/leak"
	"github.com/gorun-mpi/mpi/internal/testkit/proc"
	"github.com/gorun-mpi/mpi/internal/wire"
	"github.com/gorun-mpi/mpi/transport"
)

// patience is the limit of a wait, after which a test fails.
const patience = time.Minute

// roles are what the test binary can be in a process of its own.
var roles = map[string]func() error{}

// TestMain makes sure that no test leaves a goroutine or a descriptor.
func TestMain(m *testing.M) {
	proc.RunRole(roles)
	os.Exit(leak.VerifyMain(m.Run))
}

func watchdog(t testing.TB) { proc.PanicAfter(t, 4*patience) }

// end is a device with what it has polled.
type end struct {
	*Device
	t    testing.TB
	pkts [16]transport.Packet
	in   []transport.Packet // payloads copied
}

func secret() ([]byte, error) { return []byte("the secret of this test, 32 bytes"), nil }

// newDevice makes a device of the tests' job.
func newDevice(opt Options) (*Device, error) {
	opt.Job, opt.Secret = "test", secret
	return New(opt)
}

func open(t testing.TB, opt Options) *end {
	t.Helper()
	d, err := newDevice(opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return &end{Device: d, t: t}
}

func (e *end) link(to *end) *link {
	e.t.Helper()
	l, err := e.Connect(context.Background(), to.opt.Rank, to.Address())
	if err != nil {
		e.t.Fatal(err)
	}
	return l.(*link)
}

func (e *end) poll() int {
	n := e.Poll(e.pkts[:])
	for _, p := range e.pkts[:n] {
		p.Payload = append([]byte(nil), p.Payload...)
		e.in = append(e.in, p)
	}
	return n
}

// until polls until ok.
func (e *end) until(what string, ok func() bool) {
	e.t.Helper()
	for limit := time.Now().Add(patience); !ok(); {
		if e.poll() == 0 {
			runtime.Gosched()
		}
		if time.Now().After(limit) {
			e.t.Fatalf("rank %d: %s does not come; %d packets have", e.opt.Rank, what, len(e.in))
		}
	}
}

// downs are the ranks that were reported gone.
func (e *end) downs() (ranks []int) {
	for _, p := range e.in {
		if p.Event == transport.Down {
			ranks = append(ranks, int(p.Peer))
			if !errors.Is(p.Err, transport.ErrPeerGone) && p.Err == nil {
				e.t.Errorf("rank %d is down for no reason", p.Peer)
			}
		}
	}
	return ranks
}

// drain polls for a while in which nothing should come.
func (e *end) drain() {
	for until := time.Now().Add(20 * time.Millisecond); time.Now().Before(until); runtime.Gosched() {
		e.poll()
	}
}

func send(t testing.TB, l *link, h wire.Header, payload []byte, meanwhile func()) {
	t.Helper()
	for limit := time.Now().Add(patience); !l.TrySend(&h, payload); meanwhile() {
		if time.Now().After(limit) {
			t.Fatalf("no room for %v of %d bytes", h.Kind, len(payload))
		}
	}
}

// talk checks that a packet goes from a to b over l.
func talk(t testing.TB, l *link, b *end) {
	t.Helper()
	b.in = nil
	send(t, l, wire.Header{Kind: wire.Eager, Tag: 77}, []byte("still here"), func() { b.poll() })
	b.until("a packet of an honest peer", func() bool { return len(b.in) > 0 })
	if p := b.in[0]; p.Event != transport.Arrived || int(p.Peer) != l.d.opt.Rank || string(p.Payload) != "still here" {
		t.Errorf("%+v", p)
	}
}

// member is a process that knows the job's secret and says to a device what the test wants.
type member struct {
	t testing.TB
	p *packetConn
}

func dial(t testing.TB, address []byte) *member {
	t.Helper()
	c, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: string(address[addressMin:]), Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	p := &packetConn{UnixConn: c}
	t.Cleanup(func() { p.Close() })
	return &member{t, p}
}

// say sends one message.
func (m *member) say(b []byte, fds ...int) {
	m.t.Helper()
	m.p.out = fds
	if _, err := m.p.Write(b); err != nil {
		m.t.Fatal(err)
	}
	m.p.out = nil
}

// handshaker is that of a rank of the tests' job.
func handshaker(rank, size int) *auth.Handshaker {
	return &auth.Handshaker{Protocol: protocol, Job: "test", Rank: rank, Size: size, Secret: secret,
		Limit: patience, Patience: patience}
}

// hello makes a link of a rank to rank 0. It returns the welcome and its descriptors, or an error if the device hangs
// up.
func (m *member) hello(rank int, hello []byte, fds ...int) (welcome []byte, got []int, err error) {
	if welcome, got, err = m.welcomed(rank, hello, fds...); err == nil {
		m.say([]byte{ready})
	}
	return welcome, got, err
}

// welcomed is hello up to the welcome.
func (m *member) welcomed(rank int, hello []byte, fds ...int) (welcome []byte, got []int, err error) {
	m.t.Helper()
	s, err := handshaker(rank, 1<<20).Dial(context.Background(), m.p, 0)
	if err != nil {
		m.t.Fatal(err)
	}
	m.p.out = fds
	if err := s.Confirm(hello); err != nil {
		return nil, nil, err
	}
	m.p.out = nil
	if _, err := s.Finish(); err != nil {
		return nil, nil, err
	}
	got, err = m.p.take(3)
	return s.Payload, got, err
}

var smallRing = ring.Geometry{Slots: 64, Small: 16 << 10, Bulk: 64 << 10}

// helloOf is a correct hello.
func helloOf(g ring.Geometry) []byte { return (&Device{}).hello(g) }

// memory is a sealed segment as a correct peer makes it.
func memory(t testing.TB, g ring.Geometry) *outSegment {
	t.Helper()
	s, err := newOutSegment(g)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.close)
	return s
}

// doorbell is one as a correct peer makes it: the end that is rung, and the other.
func doorbell(t testing.TB) (rung, heard int) {
	t.Helper()
	heard, rung, err := newDoorbell()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeFDs([]int{rung, heard}) })
	return rung, heard
}

// socketAddress is the address of a rank that is reached by a socket only.
func socketAddress(name string) []byte {
	le := binary.LittleEndian
	b := append(le.AppendUint32(le.AppendUint32(nil, magic), version), make([]byte, addressMin-8)...)
	return append(b, name...)
}

// inboxOfNone are the descriptors of the inbox of a rank that does not sleep.
func inboxOfNone(t testing.TB) []int {
	t.Helper()
	rung, _ := doorbell(t)
	return []int{memfd(t, inboxSize, unix.F_SEAL_SHRINK), rung, rung}
}

// memfd makes a memfd of that size with those seals.
func memfd(t testing.TB, size int64, seals int) int {
	t.Helper()
	fd, err := unix.MemfdCreate("test", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err == nil {
		err = unix.Ftruncate(fd, size)
	}
	if err == nil {
		_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	return fd
}

// nothingLeft fails unless there are soon as many descriptors and mappings as before: goroutines may still close some.
func nothingLeft(t testing.TB, files, mappings int) {
	t.Helper()
	for limit := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		f, m := held(t)
		if f == files && m == mappings {
			return
		}
		if time.Now().After(limit) {
			t.Errorf("%d descriptors and %d mappings are left, there were %d and %d", f, m, files, mappings)
			return
		}
	}
}

// held are this process's descriptors and shared mappings that this package has made.
func held(t testing.TB) (files, mappings int) {
	t.Helper()
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(maps)) {
		// The inbox page of a closed device stays mapped: an Interrupt may be under way.
		page := strings.Contains(line, " 00000000 ") && strings.Contains(line, "memfd:gorun-inbox")
		if strings.Contains(line, "memfd:gorun-") && !page {
			mappings++
		}
	}
	return leak.Files(), mappings
}
