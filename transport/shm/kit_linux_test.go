package shm

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gorun-mpi/mpi/internal/ring"
	"github.com/gorun-mpi/mpi/internal/testkit/leak"
	"github.com/gorun-mpi/mpi/internal/testkit/proc"
	"github.com/gorun-mpi/mpi/internal/wire"
	"github.com/gorun-mpi/mpi/transport"
)

// patience is after how long something will not happen any more.
const patience = 30 * time.Second

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

func open(t testing.TB, opt Options) *end {
	t.Helper()
	d, err := New(opt)
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

// settled polls for a while in which nothing should come.
func (e *end) settled() {
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

// stranger speaks to a device without being one.
type stranger struct {
	t testing.TB
	c *net.UnixConn
}

func dial(t testing.TB, address []byte) *stranger {
	t.Helper()
	c, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: string(address[addressMin:]), Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return &stranger{t, c}
}

func (s *stranger) say(b []byte, fds ...int) {
	s.t.Helper()
	var rights []byte
	if len(fds) > 0 {
		rights = unix.UnixRights(fds...)
	}
	if _, _, err := s.c.WriteMsgUnix(b, rights, nil); err != nil {
		s.t.Fatal(err)
	}
}

// answer is what the device says: its message and descriptors, or an error when it hangs up.
func (s *stranger) answer() ([]byte, []int, error) {
	s.c.SetReadDeadline(time.Now().Add(patience))
	b := make([]byte, 100)
	n, fds, err := receiveFDs(s.c, b, 4)
	return b[:n], fds, err
}

func (s *stranger) refused() error {
	b, fds, err := s.answer()
	closeFDs(fds)
	if err == nil {
		return fmt.Errorf("it was welcomed with %d bytes", len(b))
	}
	if !errors.Is(err, io.EOF) && !errors.Is(err, unix.ECONNRESET) {
		return fmt.Errorf("it was not hung up on: %w", err)
	}
	return nil
}

var smallRing = ring.Geometry{Slots: 64, Small: 16 << 10, Bulk: 64 << 10}

// helloOf is a correct hello of a rank to the device with that address.
func helloOf(rank int, g ring.Geometry, address []byte) []byte {
	le := binary.LittleEndian
	var b []byte
	for _, v := range []int{magic, version, rank, g.Slots, g.Small, g.Bulk} {
		b = le.AppendUint32(b, uint32(v))
	}
	b = append(b, make([]byte, 16)...) // a probe at address 0
	return append(b, address[8:addressMin]...)
}

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

// memfd is one with no seals, or some.
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

// nothingLeft fails unless descriptors and mappings are soon as many again as there were: what ends may take a moment.
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
	// The page of a closed device's own inbox stays: an Interrupt may be under way.
	return leak.Files(), strings.Count(string(maps), "memfd:gorun-") - strings.Count(string(maps), "memfd:gorun-inbox")
}
