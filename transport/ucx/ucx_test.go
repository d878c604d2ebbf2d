//go:build ucx && linux && cgo

package ucx

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gorun-mpi/mpi/internal/testkit/leak"
	"github.com/gorun-mpi/mpi/internal/testkit/proc"
	"github.com/gorun-mpi/mpi/transport"
)

const patience = 30 * time.Second

var roles = map[string]func() error{
	"dies":    dies,
	"library": func() error { _, err := New(Options{Size: 2, Library: os.Getenv("TEST_LIBRARY")}); return err },
}

func TestMain(m *testing.M) {
	proc.RunRole(roles)
	if os.Getenv("UCX_TLS") == "" { // in a guest it is that of the device
		os.Setenv("UCX_TLS", "posix,sysv,cma,self")
	}
	os.Exit(leak.VerifyMain(m.Run))
}

// rank is a device with what it has polled.
type rank struct {
	*Device
	t    testing.TB
	pkts [16]transport.Packet
	in   []transport.Packet
}

func newRank(t testing.TB, number int) *rank {
	t.Helper()
	d, err := New(Options{Rank: number, Size: 2})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return &rank{Device: d.(*Device), t: t}
}

func (r *rank) reach(peer int, address []byte) {
	r.t.Helper()
	if err := r.Reach(context.Background(), peer, address); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rank) poll() { r.in = append(r.in, r.pkts[:r.Poll(r.pkts[:])]...) }

// next is the next event; the others are polled too.
func (r *rank) next(others ...*rank) transport.Packet {
	r.t.Helper()
	for limit := time.Now().Add(patience); len(r.in) == 0; {
		for _, x := range append(others, r) {
			x.poll()
		}
		if time.Now().After(limit) {
			r.t.Fatal("nothing comes")
		}
	}
	p := r.in[0]
	r.in = r.in[1:]
	return p
}

// The record that both languages share has one layout.
func TestLayout(t *testing.T) {
	if s := layouts(); s[0] != s[1] {
		t.Errorf("struct ux_done has %d bytes, and end has %d", s[1], s[0])
	}
}

// A job that has no room in a tag is refused, and is told how many ranks there may be.
func TestTooManyRanks(t *testing.T) {
	_, err := New(Options{Size: mostRanks + 1})
	if !errors.Is(err, transport.ErrUnavailable) || !strings.Contains(err.Error(), "131072") {
		t.Errorf("%v", err)
	}
}

// A library that is not there, is another one, or is too old is no transport, and the error says so.
func TestLibraries(t *testing.T) {
	old := filepath.Join(t.TempDir(), "libucp.so.0")
	c := exec.Command("gcc", "-shared", "-fPIC", "-x", "c", "-o", old, "-")
	c.Stdin = strings.NewReader("void ucp_get_version(unsigned *a, unsigned *b, unsigned *c)" +
		"{ *a = 1; *b = 12; *c = 1; }")
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for path, want := range map[string]string{
		"/nowhere/libucp.so.0": "/nowhere/libucp.so.0", "libm.so.6": "it is no libucp", old: "it is version 1.12.1",
	} {
		out, err := proc.Run(t, "library", "TEST_LIBRARY="+path)
		if err == nil || !strings.Contains(out, "transport unavailable") || !strings.Contains(out, want) {
			t.Errorf("%s: %v, %s; want %q", path, err, out, want)
		}
	}
}

// What UCX_TLS leaves nothing of is no transport either, and UCX prints nothing.
func TestNothingLeft(t *testing.T) {
	out, err := proc.Run(t, "library", "UCX_TLS=nonsense")
	if err == nil || !strings.Contains(out, "transport unavailable") || !strings.Contains(out, "UCX_TLS") ||
		strings.Contains(out, "UCX  ") {
		t.Errorf("%v, %s", err, out)
	}
}

// A rank to which there is no way is gone: what is received from it would never come.
func TestNoWay(t *testing.T) {
	t.Setenv("UCX_TLS", "self")
	a, b := newRank(t, 0), newRank(t, 1)
	a.reach(1, b.Address())
	in := transport.HostMem(make([]byte, 8))
	if _, st, err := a.Post(transport.Match{Context: 1, Source: 1, Tag: 1}, in, 1, false); st != transport.Started {
		t.Fatal(st, err)
	}
	_, err := a.Send(1, transport.Match{Context: 1, Source: 0, Tag: 1}, in, false, 2)
	if !errors.Is(err, transport.ErrUnavailable) || !strings.Contains(err.Error(), "UCX_TLS") {
		t.Errorf("Send: %v", err)
	}
	if p := a.next(); p.Event != transport.Down || p.Peer != 1 || !errors.Is(p.Err, transport.ErrUnavailable) {
		t.Errorf("%+v", p)
	}
}

// Buffers that come and go at the same addresses carry what is in them, while the collector gives pages back.
func TestMemoryComesAndGoes(t *testing.T) {
	a, b := newRank(t, 0), newRank(t, 1)
	a.reach(1, b.Address())
	stop := make(chan bool)
	over := make(chan bool)
	go func() {
		defer close(over)
		for {
			select {
			case <-stop:
				return
			default:
				debug.FreeOSMemory()
			}
		}
	}()
	rounds := 300
	if testing.Short() {
		rounds = 60
	}
	m := transport.Match{Context: 1, Source: 0, Tag: 1}
	for i := range rounds {
		size := []int{8, 5000, 70_000, 1 << 20}[i%4]
		out, in := bytes.Repeat([]byte{byte(i + 1)}, size), make([]byte, size)
		_, st, err := b.Post(m, transport.HostMem(in), 1, false)
		if err != nil || st != transport.Started {
			t.Fatal(st, err)
		}
		runtime.Gosched()
		if st, err = a.Send(1, m, transport.HostMem(out), false, 2); err != nil {
			t.Fatal(err)
		}
		if p := b.next(a); p.Err != nil || p.Header.Len != uint64(size) || !bytes.Equal(in, out) {
			t.Fatalf("round %d: %d bytes: %+v", i, size, p)
		}
		if st == transport.Started {
			if p := a.next(b); p.Err != nil {
				t.Fatal(p.Err)
			}
		}
	}
	close(stop)
	<-over
}

// Memory of Alloc is mapped once, and carries messages.
func TestMappedMemory(t *testing.T) {
	a, b := newRank(t, 0), newRank(t, 1)
	a.reach(1, b.Address())
	out, err := a.Facts().Memory.Alloc(1 << 20)
	if err != nil {
		t.Fatal(err)
	}
	in, err := b.Facts().Memory.Alloc(1 << 20)
	if err != nil {
		t.Fatal(err)
	}
	copy(out, "mapped")
	m := transport.Match{Context: 1, Source: 0, Tag: 1}
	if _, _, err := b.Post(m, transport.HostMem(in), 1, false); err != nil {
		t.Fatal(err)
	}
	st, err := a.Send(1, m, transport.HostMem(out), false, 2)
	if err != nil {
		t.Fatal(err)
	}
	if b.next(a); !bytes.Equal(in, out) {
		t.Error("other bytes have come")
	}
	if st == transport.Started {
		a.next(b)
	}
	for r, mem := range map[*rank][]byte{a: out, b: in} {
		if err := r.Facts().Memory.Free(mem); err != nil {
			t.Error(err)
		}
		if err := r.Facts().Memory.Free(mem); err == nil {
			t.Error("it is freed twice")
		}
	}
}

// A receive that is given up at any moment of its transfer has ended when nothing writes to its buffer any more.
func TestAbandonedReceive(t *testing.T) {
	for _, tls := range []string{"posix,sysv,cma,self", "posix,self", "tcp,self"} {
		t.Run(tls, func(t *testing.T) {
			t.Setenv("UCX_TLS", tls)
			a, b := newRank(t, 0), newRank(t, 1)
			a.reach(1, b.Address())
			b.reach(0, a.Address())
			out, in := bytes.Repeat([]byte{1}, 2<<20), make([]byte, 2<<20)
			given := 0
			for i := range int32(60) {
				m := transport.Match{Context: 1, Source: 0, Tag: i}
				if _, _, err := b.Post(m, transport.HostMem(in), uint64(i), false); err != nil {
					t.Fatal(err)
				}
				if _, err := a.Send(1, m, transport.HostMem(out), false, 100); err != nil {
					t.Fatal(err)
				}
				for range i {
					a.poll()
					b.poll()
				}
				b.Abandon(uint64(i), false)
				p := b.next(a)
				if p.Event != transport.TaggedDone || p.Cookie != uint64(i) {
					t.Fatalf("%+v", p)
				}
				if p.Err != nil {
					given++
				} else if !bytes.Equal(in, out) {
					t.Fatal("other bytes have come")
				}
				clear(in)
				for range 100 {
					a.poll()
					b.poll()
				}
				if bytes.IndexByte(in, 1) >= 0 {
					t.Fatalf("step %d: the buffer of a receive that had ended was written to", i)
				}
			}
			if given == 0 {
				t.Error("none was given up")
			}
		})
	}
}

// What has come for a rank that sleeps wakes it also if another goroutine posts a receive before it is awake.
func TestPostWhileArmed(t *testing.T) {
	t.Setenv("UCX_TLS", "tcp,self")
	a, b := newRank(t, 0), newRank(t, 1)
	a.reach(1, b.Address())
	in := make([]byte, 8)
	m := transport.Match{Context: 1, Source: 0, Tag: 1}
	send := func() {
		if _, err := a.Send(1, m, transport.HostMem(make([]byte, 8)), false, 1); err != nil {
			t.Fatal(err)
		}
	}
	send()
	if _, st, err := b.Post(m, transport.HostMem(in), 2, false); err != nil {
		t.Fatal(err)
	} else if st == transport.Started {
		b.next(a)
	}
	woken := false
	b.Facts().Wake[0].Notify(func(bool) { woken = true })
	shown := func() bool {
		p := []unix.PollFd{{Fd: int32(b.Facts().Wake[0].FD), Events: unix.POLLIN}}
		n, _ := unix.Poll(p, 0)
		return n > 0
	}
	for !b.Arm(transport.Any) || shown() {
		a.poll()
		b.poll()
	}
	send()
	for limit := time.Now().Add(patience); !shown(); a.poll() {
		if time.Now().After(limit) {
			t.Fatal("nothing comes")
		}
	}
	if _, _, err := b.Post(transport.Match{Context: 1, Source: 0, Tag: 2}, transport.HostMem(in), 3, true); err != nil {
		t.Fatal(err)
	}
	if !shown() && !woken {
		t.Error("a thread that sleeps is not woken any more")
	}
}

// A send that is given up is under way until its peer has read it; at once, if the job of its rank is over.
func TestAbandonedSend(t *testing.T) {
	a, b := newRank(t, 0), newRank(t, 1)
	a.reach(1, b.Address())
	b.reach(0, a.Address())
	out, in := bytes.Repeat([]byte{1}, 2<<20), make([]byte, 2<<20)
	for _, over := range []bool{false, true} {
		m := transport.Match{Context: 1, Source: 0, Tag: 1}
		if st, err := a.Send(1, m, transport.HostMem(out), false, 7); err != nil || st != transport.Started {
			t.Fatal(st, err)
		}
		a.Abandon(7, over)
		for range 1000 {
			a.poll()
			b.poll()
		}
		if (len(a.in) > 0) != over {
			t.Fatalf("over %v: %+v", over, a.in)
		}
		if _, _, err := b.Post(m, transport.HostMem(in), 8, false); err != nil {
			t.Fatal(err)
		}
		if p := b.next(a); p.Err != nil || !bytes.Equal(in, out) {
			t.Fatalf("over %v: %+v", over, p)
		}
		if over {
			if p := a.next(b); p.Event != transport.TaggedGivenUp || p.Cookie != 7 || p.Err == nil {
				t.Fatalf("%+v", p)
			}
		}
		if p := a.next(b); p.Event != transport.TaggedDone || p.Cookie != 7 || p.Err != nil {
			t.Fatalf("over %v: %+v", over, p)
		}
		clear(in)
	}
	if a.poll(); len(a.in) > 0 {
		t.Errorf("one more end: %+v", a.in)
	}
}

// An operation is found by its cookie until it has ended, also where there are more than the device had room for.
func TestFind(t *testing.T) {
	a, b := newRank(t, 0), newRank(t, 1)
	a.reach(1, b.Address())
	const n = 300
	for i := range n {
		m := transport.Match{Context: 1, Source: 1, Tag: int32(i)}
		if _, _, err := a.Post(m, transport.HostMem(make([]byte, 8)), uint64(i), false); err != nil {
			t.Fatal(err)
		}
	}
	for i := range n {
		a.Cancel(uint64(i))
		if p := a.next(); p.Cookie != uint64(i) || !errors.Is(p.Err, transport.ErrCancelled) {
			t.Fatalf("receive %d: %+v", i, p)
		}
		a.Cancel(uint64(i)) // it has ended
	}
}

// The end of a peer's process is reported once, and what is given up then ends.
func TestPeerDies(t *testing.T) {
	a := newRank(t, 0)
	p := proc.Start(t, "dies")
	a.reach(1, p.Recv())
	m := transport.Match{Context: 1, Source: 0, Tag: 1}
	long := transport.HostMem(make([]byte, 1<<20))
	st, err := a.Send(1, m, long, false, 1)
	if err != nil || st != transport.Started {
		t.Fatal(st, err)
	}
	p.Kill()
	if d := a.next(); d.Event != transport.Down || d.Peer != 1 || !errors.Is(d.Err, transport.ErrPeerGone) {
		t.Fatalf("%+v", d)
	}
	a.Abandon(1, false)
	if d := a.next(); d.Event != transport.TaggedGivenUp || d.Cookie != 1 || d.Err == nil {
		t.Fatalf("%+v", d)
	}
	if _, err := a.Send(1, m, long, false, 2); !errors.Is(err, transport.ErrPeerGone) {
		t.Errorf("Send: %v", err)
	}
}

func dies() error {
	d, err := New(Options{Rank: 1, Size: 2})
	if err != nil {
		return err
	}
	proc.Send(d.Address())
	select {}
}
