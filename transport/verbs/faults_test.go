//go:build verbs && linux && cgo

package verbs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gorun-mpi/mpi/internal/testkit/proc"
	"github.com/gorun-mpi/mpi/internal/wire"
	"github.com/gorun-mpi/mpi/transport"
)

func init() {
	roles["readable"] = readablePeer
	roles["flooded"] = flooded
}

// readableBytes is how much memory the role has that can be read; pauseVar makes its device answer to nothing.
const (
	readableBytes = 8 << 20
	pauseVar      = "GORUN_TEST_VERBS_PAUSE"
)

// readablePeer is rank 1, has memory that can be read, and polls until it is killed.
func readablePeer() error {
	d, l, err := roleDevice()
	if err != nil {
		return err
	}
	if err := offer(d, l); err != nil {
		return err
	}
	pkts := make([]transport.Packet, 8)
	if os.Getenv(pauseVar) != "" {
		if err := d.hca.inject("pause"); err != nil {
			return err
		}
	}
	fmt.Println("ready")
	for {
		d.Poll(pkts)
		time.Sleep(time.Millisecond)
	}
}

// offer tells the peer of memory that it can read.
func offer(d *Device, l *link) error {
	mem, err := d.facts.Memory.Alloc(readableBytes)
	if err != nil {
		return err
	}
	addr, key, ok := l.caps.RMA.Register(transport.HostMem(fill(mem, 5)), transport.Readable)
	if !ok {
		return errors.New("the memory cannot be registered")
	}
	l.TrySend(&wire.Header{Kind: wire.RTS, Addr: addr, Key: key, Len: readableBytes}, nil)
	l.s.confirm() // the packet is there before the device is stopped
	pkts := make([]transport.Packet, 8)
	for d.inFlight > 0 {
		d.Poll(pkts)
	}
	return nil
}

// opposite starts rank 1 in a process of its own, in some role, and connects with it.
func opposite(t *testing.T, a *end, role string, env ...string) (*proc.Process, *link) {
	t.Helper()
	o := start(t, role, env...)
	address := o.Recv()
	o.Send(a.Address())
	return o, a.linkTo(1, address)
}

// A peer that is killed while its memory is being read: each READ that was started ends, with an error or with all of
// its bytes, then the peer is down, and from then on nothing is written where they would have gone.
func TestKilledWhileRead(t *testing.T) {
	for _, pause := range []bool{false, true} {
		name := "running"
		if pause {
			name = "silent" // none is answered
		}
		t.Run(name, func(t *testing.T) {
			watchdog(t)
			var env []string
			if pause {
				needSoft(t)
				env = []string{pauseVar + "=1"}
				t.Setenv("SOFTHCA_MAX_MSG", "65536") // so many requests that not all are with the device
			}
			a := newEnd(t, 0, 2)
			o, l := opposite(t, a, "readable", env...)
			rts := a.take(transport.Arrived)
			o.ReadLine()
			after := 3
			if pause {
				after = 0
			}
			endedWhileRead(t, a, l, rts.Header.Addr, rts.Header.Key, after, o.Kill)
		})
	}
}

// endedWhileRead reads the readableBytes of a peer again and again. When some READs are done it calls ending, which
// ends the session, and it returns why a says that it has. Each READ that was started ends once, with an error or,
// until then, with all of its bytes, and nothing is written where they went from then on.
func endedWhileRead(t *testing.T, a *end, l *link, addr, key uint64, after int, ending func()) error {
	t.Helper()
	want := pattern(readableBytes, 5)
	const gets = 4
	var dst [gets][]byte
	under := map[uint64]bool{}
	done, failed, ended := 0, 0, false
	get := func(i uint64) {
		clear(dst[i])
		state, err := l.caps.RMA.Get(transport.HostMem(dst[i]), addr, key, i)
		switch {
		case errors.Is(err, transport.ErrPeerGone):
			failed++
		case err != nil:
			t.Fatal(err)
		case err == nil && state == transport.Started:
			under[i] = true
		case err == nil && state == transport.Done:
			t.Fatal("a READ is done at once")
		}
	}
	for i := range dst {
		dst[i] = make([]byte, readableBytes)
		get(uint64(i))
	}
	var gone error
	a.until("the end", func() bool {
		for _, p := range a.in {
			switch {
			case p.Event == transport.Down:
				gone = p.Err
			case p.Event != transport.RMADone || !under[p.Cookie] || gone != nil && p.Err == nil:
				t.Fatalf("event %d of READ %d after Down %v", p.Event, p.Cookie, gone)
			case p.Err != nil:
				delete(under, p.Cookie)
				failed++
			default:
				delete(under, p.Cookie)
				if done++; !bytes.Equal(dst[p.Cookie], want) {
					t.Fatal("wrong contents, and no error")
				}
				get(p.Cookie)
			}
		}
		a.in = nil
		if !ended && done >= after {
			ended = true
			ending()
		}
		return gone != nil && len(under) == 0
	})
	if !errors.Is(gone, transport.ErrPeerGone) || len(under) > 0 || failed == 0 {
		t.Errorf("%v; %d READs were never ended, %d failed, %d were done", gone, len(under), failed, done)
	}
	for i := range dst {
		fill(dst[i], 9)
	}
	until := time.Now().Add(200 * time.Millisecond)
	for time.Now().Before(until) {
		a.noPackets()
	}
	for i := range dst {
		if !bytes.Equal(dst[i], pattern(readableBytes, 9)) {
			t.Error("memory was written after Down")
		}
	}
	if state, err := l.caps.RMA.Get(transport.HostMem(dst[0]), addr, key, 0); err == nil ||
		!errors.Is(err, transport.ErrPeerGone) {
		t.Errorf("memory of the dead can be read: state %d, %v", state, err)
	}
	if !l.TrySend(&wire.Header{Kind: wire.Eager}, make([]byte, 1000)) {
		t.Error("a packet to the dead is refused: its sender would try for ever")
	}
	if a.inFlight != 0 {
		t.Errorf("%d requests are under way", a.inFlight)
	}
	return gone
}

// flooded is rank 1 and takes nothing.
func flooded() error {
	if _, _, err := roleDevice(); err != nil {
		return err
	}
	fmt.Println("ready")
	select {}
}

// A peer that is killed while sends to it wait: the sender hears of its end, once, and all buffers are there again.
func TestKilledWhileSent(t *testing.T) {
	watchdog(t)
	a := newEnd(t, 0, 2)
	o, l := opposite(t, a, "flooded")
	o.ReadLine()
	body := pattern(eagerMax, 1)
	n := 0
	a.until("a full link", func() bool {
		for ; l.TrySend(&wire.Header{Kind: wire.Eager, Tag: int32(n)}, body[:n%eagerMax]); n++ {
			if n > 100*receives {
				t.Fatal("a peer that polls nothing takes everything")
			}
		}
		return n > receives && a.inFlight == l.s.most
	})
	o.Kill()
	a.until("its end", func() bool { return len(a.in) > 0 && a.in[len(a.in)-1].Event == transport.Down })
	a.in = slices.DeleteFunc(a.in, func(p transport.Packet) bool { return p.Event == transport.Room })
	a.down(1)
	if a.inFlight != 0 || len(a.freeSends) != a.send.count-1 {
		t.Errorf("%d requests are under way, %d of %d send buffers are free", a.inFlight, len(a.freeSends), a.send.count-1)
	}
}

// three are connected ends: 0 with 1 and 2, and the links from 0 to 1 and back.
func three(t *testing.T, change ...func(*Options)) (hub, one, two *end, to, from, aside *link) {
	t.Helper()
	hub, one, two = newEnd(t, 0, 3, change...), newEnd(t, 1, 3, change...), newEnd(t, 2, 3, change...)
	to, from = hub.link(one), one.link(hub)
	return hub, one, two, to, from, hub.link(two)
}

// A queue pair that fails ends the session at both ends, what was under way with it, and no other session.
func TestQueuePairFails(t *testing.T) {
	needSoft(t)
	for _, side := range []string{"ours", "theirs"} {
		t.Run(side, func(t *testing.T) {
			watchdog(t)
			hub, one, two, to, from, aside := three(t)
			mem := pattern(1<<20, 1)
			addr, key, _ := from.caps.RMA.Register(transport.HostMem(mem), transport.Readable)
			one.injected("pause")
			if state, err := to.caps.RMA.Get(transport.HostMem(make([]byte, len(mem))), addr, key, 3); err != nil ||
				state != transport.Started {
				t.Fatal(state, err)
			}
			send(t, to, wire.Header{Kind: wire.Eager}, []byte("lost"))
			at, qpn := hub, to.s.qpn
			if side == "theirs" {
				at, qpn = one, from.s.qpn
			}
			at.injected(fmt.Sprintf("qp_fatal:%d", qpn))
			if p := hub.take(transport.RMADone); p.Cookie != 3 || p.Err == nil {
				t.Errorf("the READ ended with %v", p.Err)
			}
			// What is said depends on which is first: the event, or the request that was flushed.
			err := hub.down(1)
			if text := err.Error(); side == "ours" && !strings.Contains(text,
				"the device softhca0: "+eventText(eventQPFatal)) && !strings.Contains(text, statusText(5)) {
				t.Errorf("%v says neither which device and what event, nor what became of the request", err)
			}
			one.injected("resume")
			one.until("its end", func() bool { return len(one.in) > 0 && one.in[len(one.in)-1].Event == transport.Down })
			one.in = one.in[len(one.in)-1:]
			one.down(0)
			talk(aside, two)
			if hub.counted("async_events") == 0 && one.counted("async_events") == 0 {
				t.Error("no event: nothing was injected")
			}
		})
	}
}

// quickRetries has a device give up after a few seconds: a crowded machine answers in this time.
const quickRetries = "0.3"

// A queue pair that all at once is in the error state, at either end, and no event says so: what was asked of it ends,
// both ends are told, and no other session ends.
func TestQueuePairInError(t *testing.T) {
	for _, side := range []string{"ours", "theirs"} {
		t.Run(side, func(t *testing.T) {
			watchdog(t)
			if side == "theirs" {
				t.Setenv("SOFTHCA_RETRY_SCALE", quickRetries)
			}
			hub, one, two, to, from, aside := three(t)
			addr, key := register(t, from, pattern(readableBytes, 5))
			broken, why := to.s, statusText(5)
			if side == "theirs" { // it answers nothing, and so ours gives up
				broken, why = from.s, statusText(12)
			}
			if err := endedWhileRead(t, hub, to, addr, key, 3,
				func() { broken.qp.fail() }); !strings.Contains(err.Error(), why) {
				t.Errorf("%v does not say %q", err, why)
			}
			if err := one.down(0); !strings.Contains(err.Error(), why) {
				t.Errorf("the other end was not told why: %v", err)
			}
			talk(aside, two)
		})
	}
}

// A peer whose device does not answer any more while its process lives: the device gives up, and so do both ends.
func TestRetriesExceeded(t *testing.T) {
	watchdog(t)
	t.Setenv("SOFTHCA_RETRY_SCALE", quickRetries)
	hub, one, two, to, from, aside := three(t)
	if soft(t) {
		one.injected("port_err") // what arrives there is nowhere
	} else {
		from.s.qp.fail() // with nothing under way, so that its rank does not hear of it
	}
	send(t, to, wire.Header{Kind: wire.Eager}, []byte("hello"))
	to.s.confirm()
	if err := hub.down(1); !strings.Contains(err.Error(), statusText(12)) {
		t.Errorf("%v does not say %q", err, statusText(12))
	}
	if soft(t) && hub.counted("retries") == 0 {
		t.Error("the device has not tried again")
	}
	if err := one.down(0); !strings.Contains(err.Error(), statusText(12)) {
		t.Errorf("the other end was not told why: %v", err)
	}
	talk(aside, two)
}

// A key that is none: the READ fails, and so does the session, for a queue pair is over after that; both are told.
func TestWrongKey(t *testing.T) {
	watchdog(t)
	for _, write := range []bool{false, true} {
		a, b, ab, ba := two(t)
		mem := pattern(100, 1)
		addr, key, ok := ba.caps.RMA.Register(transport.HostMem(mem), transport.Readable|transport.Writable)
		if !ok {
			t.Fatal("not registered")
		}
		buf := pattern(100, 2)
		move := ab.caps.RMA.Get
		if write {
			move = ab.caps.RMA.Put
		}
		if state, err := move(transport.HostMem(buf), addr, key^0xff00, 7); err != nil || state != transport.Started {
			t.Fatal(state, err)
		}
		if p := a.take(transport.RMADone); p.Cookie != 7 || p.Err == nil || !strings.Contains(p.Err.Error(), "remote") {
			t.Errorf("RMADone %d, %v", p.Cookie, p.Err)
		}
		a.down(1)
		b.down(0)
		if !bytes.Equal(mem, pattern(100, 1)) || !bytes.Equal(buf, pattern(100, 2)) {
			t.Error("something was written")
		}
		if _, err := move(transport.HostMem(buf), addr, 1<<32|key, 8); err == nil {
			t.Error("a key of more than 32 bits is taken")
		}
		a.Close()
		b.Close()
	}
}

// A device that fails takes all its sessions with it, says so, and New connections are refused.
func TestDeviceFails(t *testing.T) {
	watchdog(t)
	var log notes
	hub := newEnd(t, 0, 4, log.option)
	var peers []*end
	for i := range 3 {
		peers = append(peers, newEnd(t, i+1, 4))
		l := hub.link(peers[i])
		send(t, l, wire.Header{Kind: wire.Eager}, []byte("hello"))
		peers[i].take(transport.Arrived)
	}
	if soft(t) {
		hub.injected("device_fatal")
	} else {
		hub.happened(eventDeviceFatal, 0) // soft-RoCE has no such event; what comes of it does not depend on its source
	}
	var down []int
	hub.until("the end of all", func() bool { return len(hub.in) >= len(peers) })
	for _, p := range hub.in {
		if p.Event != transport.Down || !errors.Is(p.Err, transport.ErrPeerGone) ||
			!strings.Contains(p.Err.Error(), hub.at.device) {
			t.Errorf("event %d, %v", p.Event, p.Err)
		}
		down = append(down, int(p.Peer))
	}
	hub.in = nil
	hub.noPackets()
	if slices.Sort(down); !slices.Equal(down, []int{1, 2, 3}) {
		t.Errorf("down: %v", down)
	}
	for _, p := range peers {
		p.down(0)
	}
	if said := log.with("the device has failed"); len(said) != 1 || !strings.Contains(said[0], hub.at.device) {
		t.Errorf("said %q", said)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if _, err := hub.Connect(ctx, 1, peers[0].Address()); err == nil || ctx.Err() != nil {
		t.Errorf("Connect to one whose session has failed: %v", err)
	}
}

// A port that goes down for less than the device tries again is a line in the log; what was sent meanwhile arrives.
func TestPortReturns(t *testing.T) {
	needSoft(t)
	watchdog(t)
	var log notes
	a, b := newEnd(t, 0, 2, log.option), newEnd(t, 1, 2)
	ab := a.link(b)
	for round := range 3 {
		a.injected("port_err")
		for i := range 10 {
			send(t, ab, wire.Header{Kind: wire.Eager, Tag: int32(i)}, []byte("hello"))
		}
		b.noPackets() // some time passes
		a.injected("port_active")
		for i := range 10 {
			if p := b.take(transport.Arrived); p.Header.Tag != int32(i) {
				t.Fatalf("%d arrives where %d should", p.Header.Tag, i)
			}
		}
		a.until("the log", func() bool { return len(log.with("the port's state has changed")) == 2*(round+1) })
	}
	if len(log.with("port error")) != 3 || len(log.with("port active")) != 3 {
		t.Errorf("said %q", log.text)
	}
}

// Close while READs are under way, into memory of both kinds: it ends, gives everything back, and nothing is written
// into Go's memory afterwards.
func TestCloseWhileReading(t *testing.T) {
	watchdog(t)
	const patient = 300 * time.Millisecond
	for _, pause := range []bool{false, true} {
		if pause && inGuest() {
			continue
		}
		a, b, ab, ba := two(t, func(o *Options) { o.closing = patient })
		mem := pattern(8<<20, 1)
		addr, key := registerFor(t, ba, mem, transport.Readable|transport.Lasting)
		own, err := a.facts.Memory.Alloc(len(mem))
		if err != nil {
			t.Fatal(err)
		}
		dst := make([]byte, len(mem))
		if pause {
			b.injected("pause")
		}
		for i, d := range [][]byte{own, dst, own, dst} {
			if _, err := ab.caps.RMA.Get(transport.HostMem(d), addr, key, uint64(i)); err != nil {
				t.Fatal(err)
			}
		}
		began := time.Now()
		a.Close()
		if took := time.Since(began); pause && took < patient {
			t.Errorf("Close waited %v for a peer that may yet answer", took)
		}
		if pause {
			b.injected("resume")
		}
		fill(dst, 3)
		b.down(0)
		if !bytes.Equal(dst, pattern(len(dst), 3)) {
			t.Error("memory was written after Close")
		}
		if !bytes.Equal(mem, pattern(len(mem), 1)) {
			t.Error("memory that was read has changed")
		}
		b.Close()
	}
}
