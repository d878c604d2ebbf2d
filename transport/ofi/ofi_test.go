//go:build ofi && linux && cgo

package ofi

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gorun-mpi/mpi/internal/testkit/leak"
	"github.com/gorun-mpi/mpi/internal/testkit/proc"
	"github.com/gorun-mpi/mpi/transport"
	"github.com/gorun-mpi/mpi/transport/tcp"
)

const patience = 30 * time.Second

var roles = map[string]func() error{
	"dies": dies,
	"library": func() error {
		_, err := New(Options{Size: 2, Library: os.Getenv("TEST_LIBRARY"), Provider: os.Getenv("TEST_PROVIDER")})
		return err
	},
	"signals": signals,
}

func TestMain(m *testing.M) {
	proc.RunRole(roles)
	os.Exit(leak.VerifyMain(m.Run))
}

// provider is the one that is tested, over the loopback device or what there is.
func provider() string { return cmp.Or(os.Getenv("GORUN_OFI_PROVIDER"), "tcp;ofi_rxm") }

func secret() ([]byte, error) { return []byte("the secret of this test, 32 bytes"), nil }

var jobs atomic.Int64

// rank is a device with what it has polled.
type rank struct {
	*Device
	t    testing.TB
	pkts [16]transport.Packet
	in   []transport.Packet
}

func open(number, size int, job string, registers bool) (transport.Device, error) {
	return New(Options{Rank: number, Size: size, Provider: provider(), registers: registers,
		Control: tcp.Options{Job: job, PeerTimeout: time.Minute, Secret: secret}})
}

// newRanks opens the devices of a job that reach each other.
func newRanks(t testing.TB, n int, registers bool) []*rank {
	t.Helper()
	job := strconv.FormatInt(jobs.Add(1), 10)
	var all []*rank
	for i := range n {
		d, err := open(i, n, job, registers)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { d.Close() })
		all = append(all, &rank{Device: d.(*Device), t: t})
	}
	for _, a := range all {
		for i, b := range all {
			a.reach(i, b.Address())
		}
	}
	return all
}

func pair(t testing.TB) (a, b *rank) {
	t.Helper()
	all := newRanks(t, 2, false)
	return all[0], all[1]
}

func (r *rank) reach(peer int, address []byte) {
	r.t.Helper()
	if err := r.Reach(context.Background(), peer, address); err != nil {
		r.t.Fatal(err)
	}
}

// poll keeps all events but Room: what was refused is tried again all the time.
func (r *rank) poll() {
	for _, p := range r.pkts[:r.Poll(r.pkts[:])] {
		if p.Event != transport.Room {
			r.in = append(r.in, p)
		}
	}
}

// until polls all ranks until something is so.
func until(t testing.TB, so func() bool, all ...*rank) {
	t.Helper()
	for limit := time.Now().Add(patience); !so(); {
		if time.Now().After(limit) {
			t.Fatal("nothing comes")
		}
		for _, x := range all {
			x.poll()
		}
	}
}

// next is the next event; the others are polled too.
func (r *rank) next(others ...*rank) transport.Packet {
	r.t.Helper()
	until(r.t, func() bool { return len(r.in) > 0 }, append(others, r)...)
	p := r.in[0]
	r.in = r.in[1:]
	return p
}

// send sends to a peer, and tries as long as there is no room.
func (r *rank) send(to int32, m transport.Match, buf []byte, sync bool, cookie uint64,
	others ...*rank) transport.State {
	r.t.Helper()
	st := transport.Full
	until(r.t, func() bool {
		var err error
		if st, err = r.Send(to, m, transport.HostMem(buf), sync, cookie); err != nil {
			r.t.Fatal(err)
		}
		return st != transport.Full
	}, append(others, r)...)
	return st
}

func (r *rank) post(m transport.Match, buf []byte, cookie uint64) {
	r.t.Helper()
	if _, st, err := r.Post(m, transport.HostMem(buf), cookie, false); err != nil || st != transport.Started {
		r.t.Fatal(st, err)
	}
}

// probe looks until there is a message.
func (r *rank) probe(m transport.Match, take bool, others ...*rank) (p transport.Probed) {
	r.t.Helper()
	found := false
	until(r.t, func() bool { p, found = r.Probe(m, take); return found }, append(others, r)...)
	return p
}

func from(source, tag int32) transport.Match {
	return transport.Match{Context: 1, Source: source, Tag: tag}
}

// The record that both languages share has one layout.
func TestLayout(t *testing.T) {
	if s := layouts(); s[0] != s[1] {
		t.Errorf("struct of_end has %d bytes, and end has %d", s[1], s[0])
	}
}

// A job that has no room in a tag is refused, and is told how many ranks there may be.
func TestTooManyRanks(t *testing.T) {
	_, err := New(Options{Size: mostRanks + 1})
	if !errors.Is(err, transport.ErrUnavailable) || !strings.Contains(err.Error(), "131072") {
		t.Errorf("%v", err)
	}
}

// A library that is not there, is another one, or is too old is no transport, nor is a provider that is not there, or
// that is none of a fast fabric and was not asked for; the error says so.
func TestUnavailable(t *testing.T) {
	old := filepath.Join(t.TempDir(), "libfabric.so.1")
	versions := filepath.Join(t.TempDir(), "versions")
	os.WriteFile(versions, []byte("FABRIC_1.0 { global: fi_version; fi_strerror; };\n"+
		"FABRIC_1.1 { global: fi_fabric; }; FABRIC_1.3 { global: fi_getinfo; fi_freeinfo; fi_dupinfo; };\n"), 0o666)
	c := exec.Command("gcc", "-shared", "-fPIC", "-Wl,--version-script="+versions, "-x", "c", "-o", old, "-")
	c.Stdin = strings.NewReader("int fi_version(void) { return 1 << 16 | 11; } void fi_strerror(void) {}" +
		"void fi_fabric(void) {} void fi_getinfo(void) {} void fi_freeinfo(void) {} void fi_dupinfo(void) {}")
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, c := range []struct{ library, provider, want string }{
		{"/nowhere/libfabric.so.1", "", "/nowhere/libfabric.so.1"},
		{"libm.so.6", "", "it is no libfabric"},
		{old, "", "it is version 1.11"},
		{"", "nonsense", "GORUN_OFI_PROVIDER=nonsense"},
		{"", "", "no provider of a fast fabric here"},
	} {
		out, err := proc.Run(t, "library", "TEST_LIBRARY="+c.library, "TEST_PROVIDER="+c.provider)
		if err == nil || !strings.Contains(out, "transport unavailable") || !strings.Contains(out, c.want) {
			t.Errorf("%+v: %v, %s", c, err, out)
		}
	}
}

// libfabric, and what it loads, leaves Go its signals: a nil pointer panics.
func TestSignals(t *testing.T) {
	out, err := proc.Run(t, "signals")
	if err != nil || !strings.Contains(out, "recovered") {
		t.Errorf("%v, %s", err, out)
	}
}

func signals() error {
	d, err := open(0, 1, "signals", false)
	if err != nil {
		return err
	}
	defer d.Close()
	defer func() {
		recover()
		os.Stdout.WriteString("recovered\n")
	}()
	var p *rank
	p.in = nil
	return nil
}

// An address of another provider, another length or family, or no address is refused.
func TestHostileAddress(t *testing.T) {
	a, b := pair(t)
	good := b.card
	for name, c := range map[string]card{
		"provider": {"other", good.Format, good.Address, good.Control},
		"format":   {good.Provider, good.Format + 1, good.Address, good.Control},
		"short":    {good.Provider, good.Format, good.Address[1:], good.Control},
		"family":   {good.Provider, good.Format, append([]byte{99, 99}, good.Address[2:]...), good.Control},
		"control":  {good.Provider, good.Format, good.Address, []byte("nonsense")},
	} {
		if err := a.Reach(t.Context(), 1, c.encode()); err == nil {
			t.Errorf("%s: there is no error", name)
		}
	}
	for _, text := range []string{"", "{", "\xff\xff", "null"} {
		if err := a.Reach(t.Context(), 1, []byte(text)); err == nil {
			t.Errorf("%q: there is no error", text)
		}
	}
}

var sizes = []int{0, 8, smallMax, smallMax + 1, 1000, 5000, 70_000, 1 << 20}

// A message of any length finds its receive, whichever is first; that of a synchronous send ends when it is received,
// and not before. It is so too where memory has to be registered.
func TestSendAndPost(t *testing.T) {
	for _, registers := range []bool{false, true} {
		all := newRanks(t, 2, registers)
		a, b := all[0], all[1]
		if a.own.registers != registers {
			t.Errorf("registers %v, want %v", a.own.registers, registers)
		}
		for _, size := range sizes {
			for i := range 4 {
				sync, posted := i%2 == 1, i >= 2
				data, buf := bytes.Repeat([]byte{byte(size + i + 1)}, size), make([]byte, size+1)
				source := []int32{0, -1}[i/2]
				if posted {
					b.post(from(source, -1), buf, 7)
				}
				st := a.send(1, from(0, 5), data, sync, 8, b)
				if !posted && sync {
					b.probe(from(0, 5), false, a)
					for range 100 {
						a.poll()
						b.poll()
					}
					if len(a.in) > 0 || st != transport.Started {
						t.Fatalf("%d bytes: a synchronous send has ended before it was received: %v, %+v", size, st, a.in)
					}
				}
				if !posted {
					b.post(from(source, 5), buf, 7)
				}
				p := b.next(a)
				if p.Event != transport.TaggedDone || p.Cookie != 7 || p.Err != nil || p.Peer != 0 || p.Header.Tag != 5 ||
					p.Header.Len != uint64(size) || !bytes.Equal(buf[:size], data) || buf[size] != 0 {
					t.Fatalf("%d bytes: %+v", size, p)
				}
				if st == transport.Started {
					if p := a.next(b); p.Event != transport.TaggedDone || p.Cookie != 8 || p.Err != nil {
						t.Fatalf("%+v", p)
					}
				}
				if len(a.in)+len(b.in) > 0 {
					t.Fatalf("more events: %+v, %+v", a.in, b.in)
				}
			}
		}
	}
}

// A rank sends to itself.
func TestSelf(t *testing.T) {
	a := newRanks(t, 1, false)[0]
	for _, size := range sizes {
		data, buf := bytes.Repeat([]byte{1}, size), make([]byte, size)
		a.post(from(0, 5), buf, 1)
		ends := 1
		if a.send(0, from(0, 5), data, true, 2) == transport.Started {
			ends++
		}
		for range ends {
			if p := a.next(); p.Err != nil {
				t.Fatalf("%+v", p)
			}
		}
		if !bytes.Equal(buf, data) {
			t.Fatal("other bytes have come")
		}
	}
}

// Messages of one sender stay in order, and those of other tags, contexts and sources are left alone.
func TestMatching(t *testing.T) {
	all := newRanks(t, 3, false)
	a, b, c := all[0], all[1], all[2]
	for i := range byte(4) {
		a.send(2, from(0, int32(i%2)), []byte{'a', i}, false, 1, all...)
		b.send(2, from(1, int32(i%2)), []byte{'b', i}, false, 1, all...)
	}
	a.send(2, transport.Match{Context: 2, Source: 0, Tag: 0}, []byte("other"), false, 1, all...)
	got := func(m transport.Match) string {
		t.Helper()
		buf := make([]byte, 10)
		c.post(m, buf, 3)
		p := c.next(all...)
		if p.Err != nil {
			t.Fatal(p.Err)
		}
		return strconv.Quote(string(buf[:p.Header.Len]))
	}
	for _, x := range []struct {
		m    transport.Match
		want string
	}{
		{from(1, 1), `"b\x01"`}, {from(0, -1), `"a\x00"`}, {from(1, -1), `"b\x00"`}, {from(0, -1), `"a\x01"`},
		{transport.Match{Context: 2, Source: -1, Tag: -1}, `"other"`}, {from(1, 0), `"b\x02"`}, {from(0, 1), `"a\x03"`},
		{from(0, 0), `"a\x02"`}, {from(-1, -1), `"b\x03"`},
	} {
		if g := got(x.m); g != x.want {
			t.Errorf("%+v: %s, want %s", x.m, g, x.want)
		}
	}
}

// What does not fit is lost, how long it was is said, and its sender is answered, however little room there is.
func TestTruncates(t *testing.T) {
	a, b := pair(t)
	for _, size := range sizes[1:] {
		for i := range 6 {
			room := []int{size / 2, 0}[i/3]
			data, buf := bytes.Repeat([]byte{1}, size), make([]byte, size)
			if i%3 == 0 {
				b.post(from(0, 5), buf[:room], 7)
			}
			a.send(1, from(0, 5), data, true, 8, b)
			switch i % 3 {
			case 1:
				b.probe(from(0, 5), false, a)
				b.post(from(0, 5), buf[:room], 7)
			case 2:
				m := b.probe(from(0, 5), true, a)
				if _, err := b.Take(m.Message, transport.HostMem(buf[:room]), 7); err != nil {
					t.Fatal(err)
				}
			}
			if p := b.next(a); p.Err != nil || p.Peer != 0 || p.Header.Tag != 5 || p.Header.Len != uint64(size) {
				t.Errorf("%d bytes: %+v", size, p)
			}
			if bytes.IndexByte(buf[room:], 1) >= 0 {
				t.Errorf("%d bytes: the memory behind the buffer was written to", size)
			}
			if p := a.next(b); p.Err != nil || p.Cookie != 8 {
				t.Errorf("%d bytes: %+v", size, p)
			}
		}
	}
}

// A probe leaves a message or takes it; one that is taken is no other receive's.
func TestProbe(t *testing.T) {
	a, b := pair(t)
	if p, ok := b.Probe(from(-1, -1), false); ok {
		t.Fatalf("found %+v", p)
	}
	for _, size := range sizes {
		first, second := bytes.Repeat([]byte{1}, size), bytes.Repeat([]byte{2}, size)
		a.send(1, from(0, 5), first, true, 1, b)
		st := a.send(1, from(0, 5), second, false, 2, b)
		var p transport.Probed
		for _, take := range []bool{false, true} {
			if p = b.probe(from(-1, -1), take, a); p.Source != 0 || p.Tag != 5 || p.Bytes != int64(size) {
				t.Fatalf("found %+v", p)
			}
		}
		buf := make([]byte, size)
		b.post(from(0, 5), buf, 7)
		if p := b.next(a); p.Err != nil || !bytes.Equal(buf, second) {
			t.Fatalf("%d bytes: %+v", size, p)
		}
		if _, err := b.Take(p.Message, transport.HostMem(buf), 8); err != nil {
			t.Fatal(err)
		}
		if p := b.next(a); p.Err != nil || p.Cookie != 8 || p.Peer != 0 || !bytes.Equal(buf, first) {
			t.Fatalf("%d bytes: %+v", size, p)
		}
		ends := 1
		if st == transport.Started {
			ends++
		}
		for range ends {
			if p := a.next(b); p.Err != nil {
				t.Fatal(p.Err)
			}
		}
	}
	a.send(1, from(0, 6), nil, false, 1, b)
	b.probe(from(0, 6), true, a) // Close frees it
}

// Each receive that is cancelled ends once: cancelled, or as it would have. A send ends as it would have.
func TestCancel(t *testing.T) {
	a, b := pair(t)
	const n = 300 // more than there are slots at first
	for i := range n {
		b.post(from(0, int32(i)), make([]byte, 2*smallMax*(i%2)), uint64(i))
	}
	for i := range n {
		for range 2 {
			b.Cancel(uint64(i))
		}
		if p := b.next(a); p.Cookie != uint64(i) || !errors.Is(p.Err, transport.ErrCancelled) {
			t.Fatalf("receive %d: %+v", i, p)
		}
	}
	buf := make([]byte, 8)
	b.post(from(0, 5), buf, 1)
	a.send(1, from(0, 5), []byte("received"), true, 2, b)
	a.Cancel(2)
	if p := b.next(a); p.Cookie != 1 || p.Err != nil {
		t.Fatalf("%+v", p)
	}
	if p := a.next(b); p.Cookie != 2 || p.Err != nil {
		t.Fatalf("%+v", p)
	}
}

// A receive that is given up at any moment of its transfer has ended when nothing writes to its buffer any more.
func TestAbandonedReceive(t *testing.T) {
	a, b := pair(t)
	out, in := bytes.Repeat([]byte{1}, 2<<20), make([]byte, 2<<20)
	given := 0
	for i := range int32(40) {
		m := from(0, i)
		b.post(m, in, uint64(i))
		a.send(1, m, out, false, 100, b)
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
			b.post(m, in, uint64(i)) // takes the message
			if p := b.next(a); p.Err != nil {
				t.Fatalf("%+v", p)
			}
		} else if !bytes.Equal(in, out) {
			t.Fatal("other bytes have come")
		}
		a.next(b)
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
}

// A synchronous send that is given up when only its answer is missing has its buffer back at once, and its cookie when
// the answer comes.
func TestAbandonedSend(t *testing.T) {
	a, b := pair(t)
	a.send(1, from(0, 5), []byte("sync"), true, 7, b)
	until(t, func() bool { return a.e.onlyAnswer(7) }, a, b)
	a.Abandon(7, false)
	if p := a.next(b); p.Event != transport.TaggedGivenUp || p.Cookie != 7 || p.Err == nil {
		t.Fatalf("%+v", p)
	}
	b.post(from(0, 5), make([]byte, 4), 1)
	if p := b.next(a); p.Err != nil {
		t.Fatalf("%+v", p)
	}
	if p := a.next(b); p.Event != transport.TaggedDone || p.Cookie != 7 {
		t.Fatalf("%+v", p)
	}
}

// Answers that no send waits for do nothing.
func TestHostileAnswer(t *testing.T) {
	a, b := pair(t)
	a.send(1, from(0, 5), []byte("sync"), true, 7, b)
	for _, number := range []uint64{0, 1, 7, 9, 1 << 20, 1<<31 - 1} { // 8 is the one
		until(t, func() bool { return b.e.answer(b.peers[0].to, number) == stDone }, a, b)
	}
	for range 1000 {
		a.poll()
		b.poll()
	}
	if len(a.in) > 0 {
		t.Fatalf("%+v", a.in)
	}
	b.post(from(0, 5), make([]byte, 4), 1)
	b.next(a)
	if p := a.next(b); p.Cookie != 7 || p.Err != nil {
		t.Fatalf("%+v", p)
	}
}

// Buffers that come and go at the same addresses carry what is in them, while the collector gives pages back.
func TestMemoryComesAndGoes(t *testing.T) {
	all := newRanks(t, 2, true)
	a, b := all[0], all[1]
	stop, over := make(chan bool), make(chan bool)
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
	rounds := 200
	if testing.Short() {
		rounds = 40
	}
	for i := range rounds {
		size := sizes[i%len(sizes)]
		out, in := bytes.Repeat([]byte{byte(i + 1)}, size), make([]byte, size)
		b.post(from(0, 1), in, 1)
		st := a.send(1, from(0, 1), out, false, 2, b)
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

// A rank that sleeps is woken for what comes, also for a message that nothing was posted for, and one that does not
// poll is looked after.
func TestWakes(t *testing.T) {
	a, b := pair(t)
	woken := make(chan bool, 1)
	for _, w := range b.Facts().Wake {
		w.Notify(func(bool) {
			select {
			case woken <- true:
			default:
			}
		})
	}
	a.send(1, from(0, 5), nil, false, 1, b)
	b.probe(from(0, 5), false, a)
	for _, level := range []transport.Level{transport.Any, transport.Thread, transport.Urgent} {
		until(t, func() bool { return b.Arm(level) }, b)
		select {
		case <-woken:
		default:
		}
		a.send(1, from(0, 6), nil, false, 1)
		select {
		case <-woken:
		case <-time.After(patience):
			t.Fatal("it is not woken")
		}
		b.Disarm()
		b.probe(from(0, 6), false, a)
	}
}

// A rank that has sent something, and makes no call any more, is looked after: libfabric may have it still. So is one
// whose thread has slept before, or would have, had nothing been there.
func TestLooksAfterSends(t *testing.T) {
	a, b := pair(t)
	woken := make(chan bool, 1)
	for _, w := range a.Facts().Wake {
		w.Notify(func(thread bool) {
			if !thread {
				select {
				case woken <- true:
				default:
				}
			}
		})
	}
	for _, before := range []string{"", "it has slept", "it was refused to sleep"} {
		switch before {
		case "it has slept":
			until(t, func() bool { return a.Arm(transport.Thread) }, a)
			a.Disarm()
		case "it was refused to sleep":
			refused := false
			until(t, func() bool {
				a.post(from(1, 8), make([]byte, 8), 2)
				b.send(0, from(1, 8), make([]byte, 8), false, 2)
				for range 20 { // the other end moves the message
					b.poll()
					time.Sleep(time.Millisecond)
				}
				if refused = !a.Arm(transport.Thread); !refused {
					a.Disarm()
				}
				a.next(b)
				return refused
			}, b)
		}
		a.send(1, from(0, 7), nil, false, 1, b)
		a.poll()
		select {
		case <-woken:
		default:
		}
		select {
		case <-woken:
		case <-time.After(patience):
			t.Fatalf("%s: nobody has it poll", before)
		}
		b.probe(from(0, 7), true, a)
	}
}

// The end of a peer's process is reported once, and what is given up then ends.
func TestPeerDies(t *testing.T) {
	d, err := open(0, 2, "dies", false)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	a := &rank{Device: d.(*Device), t: t}
	p := proc.Start(t, "dies")
	a.reach(1, p.Recv())
	long := make([]byte, 1<<20)
	a.post(from(1, 1), long, 2)
	a.post(from(-1, 2), long, 3)
	p.Kill()
	if d := a.next(); d.Event != transport.Down || d.Peer != 1 || !errors.Is(d.Err, transport.ErrPeerGone) {
		t.Fatalf("%+v", d)
	}
	for cookie := uint64(2); cookie < 4; cookie++ {
		a.Abandon(cookie, false)
		if d := a.next(); d.Cookie != cookie || d.Err == nil {
			t.Fatalf("%+v", d)
		}
	}
	if _, err := a.Send(1, from(0, 1), transport.HostMem(long), false, 4); !errors.Is(err, transport.ErrPeerGone) {
		t.Errorf("Send: %v", err)
	}
}

// A peer that dies while it has not received a long message: the send is given up.
func TestPeerDiesBeforeItReceives(t *testing.T) {
	d, err := open(0, 2, "dies", false)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	a := &rank{Device: d.(*Device), t: t}
	p := proc.Start(t, "dies")
	a.reach(1, p.Recv())
	a.send(1, from(0, 1), make([]byte, 1<<20), false, 1)
	p.Kill()
	ended := false
	for {
		d := a.next()
		if d.Event == transport.Down {
			break
		}
		if d.Cookie != 1 || d.Err == nil {
			t.Fatalf("%+v", d)
		}
		ended = true // libfabric was faster
	}
	a.Abandon(1, false)
	if !ended {
		if d := a.next(); d.Cookie != 1 || d.Err == nil {
			t.Fatalf("%+v", d)
		}
	}
}

// dies polls until it is killed: connections are made in calls of libfabric.
func dies() error {
	d, err := open(1, 2, "dies", false)
	if err != nil {
		return err
	}
	proc.Send(d.Address())
	for {
		d.Poll(make([]transport.Packet, 8))
	}
}

// Query finds the provider that the tests use.
func TestQuery(t *testing.T) {
	i, err := Query("")
	if err != nil || i.Version == "" || i.Path == "" || len(i.Domains) == 0 ||
		!strings.Contains(strings.Join(i.Providers, " "), provider()) {
		t.Errorf("%+v, %v", i, err)
	}
}
