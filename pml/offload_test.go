package pml

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/gorun-mpi/mpi/internal/wire"
	"github.com/gorun-mpi/mpi/transport"
)

// One test for each rule of matching by a device that the engine is responsible for.
//
//	R1   every posted receive stands in the table, handed down or not
//	R2   the unexpected messages are looked at first
//	R3   of two receives that could match one message, the younger is handed down only if the older is
//	R4   receives are handed down in the order in which they were posted
//	R5   a receive from any source never is: others send past the device
//	R6   what the device leaves to software is matched with the whole table; a receive that is hit is taken back; then
//	     OffloadSeen
//	R7   the device hears of every message that was seen, so that its 16-bit counter never laps itself
//	R8   events are handled in the order of Poll, under one lock (TestOffloadAgainstModel)
//	R9   a match leaves the table at once, and completes when its payload is there
//	R10  the device decides whether a receive is cancelled; a probe sees unexpected messages only
//	R11  no buffer that is too short, and none twice
//	R12  no more receives than the device holds
//	R13  the mask of a receive without wildcards is all ones
//	R14  a sender's buffer is busy until FIN: as ever (rendezvous)
//	R15  matchable messages of one peer use one queue pair: the device's
//	R16  of a rendezvous that software takes over the sender hears one end

// offloaded is a rank 0 with a NIC that matches what ranks 1 and 2 send.
type offloaded struct {
	*testing.T
	net *testNet
	nic *testNIC
	e   *Engine
}

const (
	offloadMin  = 256
	offloadTags = 8
	offloadLong = 5000 // more than eager messages have
)

func newOffloaded(t *testing.T, change ...func(*netOptions, *testNIC)) *offloaded {
	watchdog(t)
	o := &offloaded{T: t, nic: &testNIC{limits: nicLimits{Tags: offloadTags, Min: offloadMin}}}
	opt := netOptions{ranks: 3, eagerMax: offloadMin, fragMax: 512, unexpectedMax: 1 << 20, nic: func(rank int) *testNIC {
		if rank == 0 {
			return o.nic
		}
		return nil
	}}
	for _, c := range change {
		c(&opt, o.nic)
	}
	o.net = newTestNet(opt)
	o.e = o.net.engines[0]
	t.Cleanup(func() {
		o.net.check(t)
		o.net.close()
	})
	return o
}

func linked(t *testing.T, change ...func(*netOptions, *testNIC)) *offloaded {
	o := newOffloaded(t, change...)
	o.net.linkAll()
	return o
}

func slowly(_ *netOptions, c *testNIC) { c.slow = true }

func (o *offloaded) recv(source int, tag int32, size int) *Request {
	o.Helper()
	r := o.e.Irecv(nil, scriptContext, source, tag, make([]byte, size))
	o.net.awaitConnects()
	o.net.check(o)
	return r
}

// send lets a rank send to rank 0; the message stays on its wire.
func (o *offloaded) send(from int, tag int32, size int) *Request {
	r := o.net.engines[from].Isend(nil, scriptContext, 0, tag, contents(from, int(tag), size), Standard)
	o.net.awaitConnects()
	return r
}

// all lets everything happen that can.
func (o *offloaded) all() {
	o.Helper()
	for range 6 {
		for rank := range o.net.engines {
			o.net.deliver(rank, math.MaxInt)
		}
	}
	o.net.check(o)
}

func (o *offloaded) done(e *Engine, r *Request, source, tag int32, size int) {
	o.Helper()
	buf := r.buf.Bytes()
	done, st, err := r.Test()
	if !done || err != nil || st.Source != source || st.Tag != tag || st.Bytes != int64(size) || st.Cancelled {
		o.Fatalf("done %v, %+v, %v, want %d bytes from %d with tag %d", done, st, err, size, source, tag)
	}
	if !bytes.Equal(buf[:size], contents(int(source), int(tag), size)) {
		o.Fatalf("wrong contents in %d bytes from %d with tag %d", size, source, tag)
	}
}

// sent checks that rank 1 is done with a message.
func (o *offloaded) sent(r *Request) {
	o.Helper()
	if done, _, err := r.Test(); !done || err != nil {
		o.Fatalf("the sender: done %v, %v", done, err)
	}
}

func (o *offloaded) got(r *Request, source, tag int32, size int) {
	o.Helper()
	o.done(o.e, r, source, tag, size)
}

func (o *offloaded) cancelled(r *Request) {
	o.Helper()
	if done, st, err := r.Test(); !done || err != nil || !st.Cancelled {
		o.Fatalf("done %v, %+v, %v, want it cancelled", done, st, err)
	}
}

func (o *offloaded) open(r *Request) {
	o.Helper()
	if r.state != stActive {
		o.Fatalf("it is complete: %+v, %v", r.status, r.err)
	}
}

func (o *offloaded) stats(matches, software, posted, back uint64) {
	o.Helper()
	s := o.e.Stats()
	if s.OffloadMatches != matches || s.SoftwareMatches != software || s.OffloadPosted != posted || s.OffloadTakenBack != back {
		o.Fatalf("%d matches by the device, %d by software, %d receives handed down, %d taken back; want %d, %d, %d, %d",
			s.OffloadMatches, s.SoftwareMatches, s.OffloadPosted, s.OffloadTakenBack, matches, software, posted, back)
	}
	if s.MatchedOnArrival < matches {
		o.Fatalf("%d matched on arrival, %d by the device", s.MatchedOnArrival, matches)
	}
}

func (o *offloaded) fell(want string) {
	o.Helper()
	if got := o.e.Stats().OffloadFallbacks.String(); got != want {
		o.Fatalf("receives with software by reason: %s, want %s", got, want)
	}
}

// checkLog are the NIC's operations since the last call.
func (o *offloaded) checkLog(want ...string) {
	o.Helper()
	if !slices.Equal(o.nic.log, want) {
		o.Fatalf("the NIC was asked for %q, want %q", o.nic.log, want)
	}
	o.nic.log = nil
}

func TestR1Shadow(t *testing.T) {
	o := linked(t)
	r := o.recv(1, 7, 300)
	soft := o.recv(1, 8, 10)
	if n := o.e.Stats().Posted; n != 2 || len(o.nic.list) != 1 {
		t.Fatalf("%d receives are in the table, %d in the NIC, want 2 and 1", n, len(o.nic.list))
	}
	o.send(1, 7, 20)
	o.all()
	o.got(r, 1, 7, 20)
	o.open(soft)
	if n := o.e.Stats().Posted; n != 1 || len(o.nic.list) != 0 {
		t.Fatalf("%d receives are in the table, %d in the NIC, want 1 and 0", n, len(o.nic.list))
	}
	o.stats(1, 0, 1, 0)
}

func TestR2UnexpectedFirst(t *testing.T) {
	o := linked(t)
	o.send(1, 7, 20)
	o.all()
	o.checkLog("seen")
	r := o.recv(1, 7, 300)
	o.got(r, 1, 7, 20)
	o.checkLog()
	o.stats(0, 1, 0, 0)
}

// Each line: receives in the order in which they are posted, as source/tag with * for any, s in front if the buffer is
// short; and which of them (d) the device has.
func TestR3PrefixInvariant(t *testing.T) {
	for _, c := range []struct{ posts, want string }{
		{"1/1 1/1 1/2 2/1", "dddd"},
		{"1/1 s1/1 1/1 1/1", "dsss"},
		{"s1/1 1/2 1/3", "sdd"},
		{"1/1 1/* 1/1 1/2 1/*", "ddddd"},
		{"s1/9 1/* 1/1", "sss"},
		{"s1/9 1/* 2/* 2/1", "ssdd"},
		{"s1/* 1/1 2/1 2/*", "ssdd"},
		{"1/1 */1 1/1 2/9", "dsss"},
		{"*/* 1/1 1/* 2/9", "ssss"},
		{"1/1 0/* 1/1 1/*", "dsdd"},                                    // what rank 0 sends to itself concerns no other rank
		{"1/1 1/1 1/1 1/1 1/1 1/1 1/1 1/1 1/1 1/2 1/1", "ddddddddsss"}, // it is full
	} {
		t.Run(c.posts, func(t *testing.T) {
			o := linked(t)
			var rs []*Request
			for _, text := range strings.Fields(c.posts) {
				size := 300
				if text[0] == 's' {
					size, text = 10, text[1:]
				}
				source, tag, _ := strings.Cut(strings.ReplaceAll(text, "*", "-1"), "/")
				var n [2]int
				fmt.Sscan(source+" "+tag, &n[0], &n[1])
				rs = append(rs, o.recv(n[0], int32(n[1]), size))
			}
			got := ""
			for _, r := range rs {
				if r.offload.state == inDevice {
					got += "d"
				} else {
					got += "s"
				}
			}
			if got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
}

// What stood in the way has gone, one way or another: the next receive goes down.
func TestR3WayIsFreeAgain(t *testing.T) {
	for _, how := range []string{"matched", "cancelled", "matched-by-unexpected", "dropped"} {
		t.Run(how, func(t *testing.T) {
			o := linked(t)
			const soft = 10
			rs := []*Request{o.recv(1, AnyTag, soft), o.recv(1, 3, soft), o.recv(AnySource, 4, soft)}
			if late := o.recv(1, 5, 300); late.offload.state == inDevice {
				t.Fatal("handed down although wildcards are with software")
			}
			switch how {
			case "matched":
				for _, tag := range []int32{6, 3, 4, 5} {
					o.send(1, tag, soft)
				}
				o.all()
				o.got(rs[0], 1, 6, soft)
			case "cancelled":
				for _, r := range o.e.links.table.Naming(1) {
					r.Owner.(*Request).Cancel()
				}
				rs[2].Cancel()
				o.cancelled(rs[0])
			case "dropped":
				o.e.DropContext(scriptContext, errors.New("freed"))
			default:
				for range 4 { // from AnySource for a start; a receive with a taken message leaves nothing behind
					o.send(1, 5, soft)
				}
				for _, tag := range []int32{3, 4, 5} {
					o.send(1, tag, soft)
				}
				o.all()
				for o.e.Stats().Unexpected > 0 {
					o.recv(AnySource, AnyTag, soft)
				}
			}
			if r := o.recv(1, AnyTag, 300); r.offload.state != inDevice {
				t.Errorf("not handed down: %v", o.e.Stats().OffloadFallbacks)
			}
		})
	}
}

func TestR4PostOrder(t *testing.T) {
	o := newOffloaded(t)
	// Before there is a link, which one direction alone does not need.
	first := o.recv(1, 1, 300)
	o.recv(1, AnyTag, 300)
	o.recv(1, 2, 300)
	o.recv(1, 1, 300)
	o.checkLog()
	o.net.linkAll()
	o.checkLog("post 4/1/1", "post 4/1/0", "post 4/1/2", "post 4/1/1")
	o.net.check(t)
	o.recv(1, 1, 300)
	o.checkLog("post 4/1/1")
	o.send(1, 1, 30)
	o.all()
	o.got(first, 1, 1, 30)
	o.stats(1, 0, 5, 0)
}

func TestR5AnySource(t *testing.T) {
	o := linked(t, func(_ *netOptions, c *testNIC) { c.peers = []int{1} })
	a, b, c := o.recv(AnySource, 1, 300), o.recv(AnySource, AnyTag, 300), o.recv(AnySource, 1, 300)
	o.checkLog()
	o.send(0, 1, 30)
	o.send(2, 5, 40)
	o.all()
	o.send(1, 1, 50)
	o.all()
	o.got(a, 0, 1, 30)
	o.got(b, 2, 5, 40)
	o.got(c, 1, 1, 50)
	o.fell("[any-source:3]")
	d := o.recv(2, 1, 300)
	e := o.recv(0, 1, 300)
	o.fell("[any-source:3 other-peer:2]")
	o.send(0, 1, 30)
	o.send(2, 1, 30)
	o.all()
	o.got(d, 2, 1, 30)
	o.got(e, 0, 1, 30)
	o.stats(0, 1, 0, 0)
}

// A message that the NIC has left to software while a receive for it was handed down.
func TestR6TakenOver(t *testing.T) {
	for _, size := range []int{20, offloadLong} {
		o := linked(t, slowly)
		o.send(1, 7, size)
		o.net.mu.Lock()
		o.nic.arrive(o.net.wires[[2]int{1, 0}][0]) // and software has not heard of it
		o.net.wires[[2]int{1, 0}] = nil
		o.net.mu.Unlock()
		r := o.recv(1, 7, 6000)
		other := o.recv(1, 8, 6000)
		o.nic.runOp()
		o.nic.runOp()
		if o.nic.list[0].active || o.nic.list[1].active {
			t.Fatal("the NIC would let a message overtake another")
		}
		o.checkLog("post 4/1/7", "post 4/1/8")
		o.net.work(0)
		o.checkLog("cancel 7", "seen") // in this order
		if size < offloadLong {
			o.got(r, 1, 7, size) // before OffloadBack
		}
		again := o.e.Irecv(nil, scriptContext, 1, 9, r.keepBuf(o))
		o.fell("[same-buffer:1]")
		o.stats(0, 1, 2, 1)
		o.all()
		if size == offloadLong {
			o.got(r, 1, 7, size)
		}
		if !o.nic.list[0].active || len(o.nic.list) != 1 {
			t.Fatal("the other receive is not ready")
		}
		o.send(1, 8, 30)
		o.send(1, 9, 30)
		o.all()
		o.got(other, 1, 8, 30)
		o.got(again, 1, 9, 30)
		if len(o.nic.entries) != 0 {
			t.Errorf("%d receives are left in the NIC", len(o.nic.entries))
		}
	}
}

// keepBuf is the buffer that the NIC has had longest.
func (*Request) keepBuf(o *offloaded) []byte { return o.nic.list[0].buf }

// Seen once for each packet that was counted, whatever becomes of it.
func TestR6Seen(t *testing.T) {
	o := newOffloaded(t)
	inject := func(h wire.Header) {
		o.nic.arrive(transport.Packet{Peer: 1, Header: h})
		o.net.work(0)
	}
	o.net.hostile = true
	inject(wire.Header{Kind: wire.Eager, Ctx: scriptContext, Tag: 1}) // queued, before there is a link
	inject(wire.Header{Kind: wire.EagerSync, Ctx: scriptContext, Tag: 1, ID: 1})
	inject(wire.Header{Kind: wire.Credit}) // not counted
	o.checkLog("seen", "seen")
	o.net.linkAll()
	o.checkLog()
	r := o.recv(1, 2, 10)
	inject(wire.Header{Kind: wire.Eager, Ctx: scriptContext, Tag: 2})
	o.got(r, 1, 2, 0)
	o.checkLog("seen")
	down := o.recv(1, 3, 300)
	o.checkLog("post 4/1/3")
	inject(wire.Header{Kind: wire.RTS, Ctx: scriptContext, Tag: 4, Len: math.MaxUint64}) // which fails the peer
	o.checkLog("cancel 3", "seen")
	o.all() // the device lets go of it
	if done, _, err := down.Test(); !done || !errors.Is(err, transport.ErrPeerGone) {
		t.Errorf("done %v, %v", done, err)
	}
	inject(wire.Header{Kind: wire.Eager, Ctx: scriptContext, Tag: 5}) // dropped
	o.checkLog("seen")
}

// A NIC counts with 16 bits and must hear of what was seen in time.
func TestR7CounterWraps(t *testing.T) {
	begin := inShort[uint64](0, 1<<16-1000) // with -short the counters are nearly there
	messages := inShort(70_000, 4000)
	for _, noSync := range []bool{false, true} {
		o := linked(t, func(_ *netOptions, c *testNIC) {
			c.noSync, c.trusted = noSync, true
			c.hw, c.sw = uint16(begin), uint16(begin)
			c.counted, c.given, c.seen, c.reported = begin, begin, begin, begin
		})
		buf := make([]byte, 300)
		for i := range messages {
			o.send(1, 7, 0)
			if i%(messages/70) == 0 { // a receive in time
				pre := o.e.Irecv(nil, scriptContext, 1, 8, buf)
				o.net.deliver(0, 1)
				o.send(1, 8, 10)
				o.net.deliver(0, 1)
				o.net.deliver(0, 1)
				o.got(pre, 1, 8, 10)
			} else {
				o.net.deliver(0, 1)
			}
			if _, err := o.e.Recv(nil, scriptContext, 1, 7, buf); err != nil {
				t.Fatal(err)
			}
			o.net.deliver(1, 10)
		}
		s := o.e.Stats()
		if o.nic.seen != o.nic.counted || o.nic.counted-begin < uint64(messages) || s.OffloadMatches < 60 {
			t.Errorf("%d packets counted, %d seen; %d matches by the device, %d by software", o.nic.counted, o.nic.seen, s.OffloadMatches, s.SoftwareMatches)
		}
	}
}

// What the device has matched is off the table at once: the next message may be told of before the first is complete,
// even in the same poll.
func TestR9MatchedLeavesShadow(t *testing.T) {
	o := linked(t, slowly)
	first := o.recv(1, 7, 300)
	o.nic.runOp()
	o.send(1, 7, 20)
	o.send(1, 7, 30)
	o.net.deliver(0, 2) // matched; counted
	o.open(first)
	if s := o.e.Stats(); s.Unexpected != 1 || s.Posted != 0 {
		t.Fatalf("%d messages wait, %d receives: want 1 and 0", s.Unexpected, s.Posted)
	}
	second := o.recv(1, 7, 300)
	o.got(second, 1, 7, 30)
	o.open(first)
	o.all()
	o.got(first, 1, 7, 20)
	o.stats(1, 1, 1, 0)
}

func TestR10Cancel(t *testing.T) {
	o := linked(t, slowly)
	r := o.recv(1, 7, 300)
	o.nic.runOp()
	for range 3 {
		r.Cancel()
	}
	o.open(r)
	o.checkLog("post 4/1/7", "cancel 7")
	o.nic.runOp()
	o.open(r)
	o.net.work(0)
	o.cancelled(r)
	o.stats(0, 0, 1, 1)

	// A message is faster, and then there is nothing to cancel.
	r = o.recv(1, 7, 300)
	o.nic.runOp()
	o.send(1, 7, 20)
	o.net.deliver(0, 1)
	r.Cancel()
	o.open(r)
	o.checkLog("post 4/1/7")
	o.all()
	o.got(r, 1, 7, 20)

	// It is on its way when the receive is cancelled.
	r = o.recv(1, 7, 300)
	o.nic.runOp()
	o.send(1, 7, 20)
	o.net.mu.Lock()
	o.nic.arrive(o.net.wires[[2]int{1, 0}][0])
	o.net.wires[[2]int{1, 0}] = nil
	o.net.mu.Unlock()
	r.Cancel()
	o.open(r)
	o.all()
	o.got(r, 1, 7, 20)

	// The message comes to software while the receive is being taken back.
	o.send(1, 9, 20)
	o.net.mu.Lock()
	o.nic.arrive(o.net.wires[[2]int{1, 0}][0])
	o.net.wires[[2]int{1, 0}] = nil
	o.net.mu.Unlock()
	r = o.recv(1, 9, 300)
	r.Cancel()
	o.net.work(0)
	o.got(r, 1, 9, 20)
	o.all()
	o.stats(2, 1, 4, 2)
	if len(o.nic.entries) != 0 {
		t.Errorf("%d receives are left in the NIC", len(o.nic.entries))
	}
}

func TestR10ContextEnds(t *testing.T) {
	o := linked(t)
	ended, end := context.WithCancel(t.Context())
	r := o.e.Irecv(ended, scriptContext, 1, 7, make([]byte, 300))
	late := o.e.Irecv(ended, scriptContext, 1, 8, make([]byte, 300))
	o.send(1, 8, 20)
	o.net.mu.Lock()
	o.nic.arrive(o.net.wires[[2]int{1, 0}][0])
	o.net.wires[[2]int{1, 0}] = nil
	o.net.mu.Unlock()
	end()
	for _, r := range []*Request{r, late} {
		if done, _, _ := r.Test(); done {
			t.Fatal("done before the device has given it back")
		}
	}
	o.all()
	if done, st, err := r.Test(); !done || !st.Cancelled || !errors.Is(err, context.Canceled) {
		t.Errorf("done %v, %+v, %v", done, st, err)
	}
	o.got(late, 1, 8, 20)
}

// A probe finds what waits, and nothing that the device matches.
func TestR10Probe(t *testing.T) {
	o := linked(t, slowly)
	r := o.recv(1, 7, 300)
	o.nic.runOp()
	o.send(1, 7, 20)
	o.send(1, 7, 30)
	o.net.deliver(0, 1)
	if _, st, found, err := o.e.Iprobe(scriptContext, 1, 7, false); found || err != nil {
		t.Fatalf("found %+v, %v", st, err)
	}
	o.net.deliver(0, 1)
	m, st, found, err := o.e.Iprobe(scriptContext, 1, AnyTag, true)
	if !found || err != nil || st.Bytes != 30 {
		t.Fatalf("found %v, %+v, %v", found, st, err)
	}
	second, err := o.e.Imrecv(nil, m, make([]byte, 300))
	if err != nil {
		t.Fatal(err)
	}
	o.got(second, 1, 7, 30)
	o.all()
	o.got(r, 1, 7, 20)
}

func TestR11Buffers(t *testing.T) {
	o := linked(t)
	o.recv(1, 1, 0)
	o.recv(1, 2, offloadMin-1)
	o.checkLog()
	o.fell("[short-buffer:2]")
	buf := make([]byte, offloadMin)
	a := o.e.Irecv(nil, scriptContext, 1, 3, buf)
	o.checkLog("post 4/1/3")
	b := o.e.Irecv(nil, scriptContext, 1, 4, buf) // a program's mistake, but not the device's to suffer for
	o.checkLog()
	o.fell("[short-buffer:2 same-buffer:1]")
	o.send(1, 3, offloadMin)
	o.all()
	o.got(a, 1, 3, offloadMin)
	o.send(1, 4, 10)
	o.all()
	o.got(b, 1, 4, 10)
	c := o.e.Irecv(nil, scriptContext, 1, 5, buf)
	o.checkLog("seen", "post 4/1/5")
	o.send(1, 5, 10)
	o.all()
	o.got(c, 1, 5, 10)
	o.net.refused = true
	d := o.recv(1, 6, 300)
	o.fell("[short-buffer:2 same-buffer:1 unregistered:1]")
	o.send(1, 6, 10)
	o.all()
	o.got(d, 1, 6, 10)
}

// A full list is no error: the rest is with software, until there is room again.
func TestR12ListFull(t *testing.T) {
	o := linked(t)
	for range 3 {
		var rs []*Request
		for i := range 3 * offloadTags {
			rs = append(rs, o.recv(1, int32(i), 300))
		}
		for i := range rs {
			o.send(1, int32(i), 20)
		}
		o.all()
		for i, r := range rs {
			o.got(r, 1, int32(i), 20)
		}
	}
	o.fell(fmt.Sprintf("[list-full:%d]", 3*2*offloadTags))
	o.stats(3*offloadTags, 3*2*offloadTags, 3*offloadTags, 0)
}

func TestR13Tags(t *testing.T) {
	o := linked(t)
	o.recv(1, wire.MaxTag, 300)
	o.recv(2, AnyTag, 300)
	e := o.nic.list
	if e[0].tag != 4<<48|1<<31|wire.MaxTag || e[0].mask != math.MaxUint64 || e[1].tag != 4<<48|2<<31 || e[1].mask != math.MaxUint64^wire.MaxTag {
		t.Errorf("tags %#x, %#x, masks %#x, %#x", e[0].tag, e[1].tag, e[0].mask, e[1].mask)
	}
	const large = 1 << 16
	r := o.e.Irecv(nil, large, 1, 3, make([]byte, 300))
	o.fell("[context:1]")
	s := o.net.engines[1].Isend(nil, large, 0, 3, contents(1, 3, 20), Standard)
	o.all()
	o.got(r, 1, 3, 20)
	o.sent(s)
}

// A rendezvous by the NIC, and one that it leaves to software, whole or too long for the buffer: in each case the sender
// hears of the end once, and not before.
func TestR16OneEnd(t *testing.T) {
	for _, c := range []struct {
		noRead bool
		size   int
	}{{false, offloadLong}, {true, offloadLong}, {false, 2 * offloadLong}} {
		o := linked(t, func(_ *netOptions, nic *testNIC) { nic.noRead = c.noRead })
		fins, reads := 0, 0
		o.net.log = func(format string, args ...any) {
			fins += strings.Count(fmt.Sprintf(format, args...), " fin ")
			reads += strings.Count(format, "NIC reads")
		}
		r := o.recv(1, 7, offloadLong)
		s := o.send(1, 7, c.size)
		for _, r := range []*Request{r, s} {
			o.open(r)
		}
		o.all()
		if c.size == offloadLong {
			o.got(r, 1, 7, c.size)
		} else if done, st, err := r.Test(); !done || st.Bytes != offloadLong || !errors.Is(err, ErrTruncate) {
			t.Errorf("done %v, %+v, %v", done, st, err)
		} else if !bytes.Equal(o.nic.last[:offloadLong], contents(1, 7, offloadLong)) {
			t.Error("what fits is not there")
		}
		if done, _, err := s.Test(); !done || err != nil || fins != 1 {
			t.Errorf("the sender: done %v, %v; %d FINs", done, err, fins)
		}
		o.stats(1, 0, 1, 0)
		if (reads == 1) != (!c.noRead && c.size == offloadLong) || reads > 1 {
			t.Errorf("%d READs by the NIC", reads)
		}
	}
}

// A synchronous message that the device matches.
func TestOffloadSync(t *testing.T) {
	o := linked(t, slowly)
	r := o.recv(1, 7, 300)
	o.nic.runOp()
	s := o.net.engines[1].Isend(nil, scriptContext, 0, 7, contents(1, 7, 20), Synchronous)
	o.net.deliver(0, 1)
	o.net.deliver(1, 1)
	o.open(r)
	o.open(s)
	o.all()
	o.got(r, 1, 7, 20)
	o.sent(s)
}

// Receives that fail while the device has them, or has matched them.
func TestOffloadFailures(t *testing.T) {
	for _, how := range []string{"down", "close", "drop"} {
		for _, size := range []int{20, offloadLong} {
			t.Run(fmt.Sprint(how, size), func(t *testing.T) {
				o := linked(t, slowly)
				unmatched := o.recv(1, 1, 300)
				matched := o.recv(1, 2, 6000)
				soft := o.recv(1, 3, 10)
				racing := o.recv(1, 4, 6000)
				o.nic.runOp()
				o.nic.runOp()
				o.nic.runOp()
				s := o.net.engines[1].Isend(nil, scriptContext, 0, 2, contents(1, 2, size), Synchronous)
				o.net.deliver(0, 1)
				s2 := o.net.engines[1].Isend(nil, scriptContext, 0, 4, contents(1, 4, size), Synchronous)
				o.net.mu.Lock()
				o.nic.arrive(o.net.wires[[2]int{1, 0}][0])
				o.net.wires[[2]int{1, 0}] = nil
				o.net.mu.Unlock()
				why := errors.New("the test")
				switch how {
				case "down":
					o.net.devices[0].inbox = append(o.net.devices[0].inbox, transport.Packet{Event: transport.Down, Peer: 1, Err: why})
					o.e.lock()
					o.e.progress()
					o.e.exitCall()
					o.e.unlock()
				case "close":
					o.e.Fail(why)
				case "drop":
					o.e.DropContext(scriptContext, why)
				}
				o.nic.log = nil
				for i, r := range []*Request{unmatched, racing, matched} {
					if done, _, err := r.Test(); done {
						t.Errorf("receive %d is over while the device has its buffer: %v", i, err)
					}
				}
				if done, _, err := soft.Test(); !done || !errors.Is(err, why) {
					t.Errorf("what software has: done %v, %v", done, err)
				}
				o.all()
				for i, r := range []*Request{unmatched, racing} {
					if done, _, err := r.Test(); !done || !errors.Is(err, why) {
						t.Errorf("receive %d: done %v, %v", i, done, err)
					}
				}
				if how != "drop" {
					if done, _, err := matched.Test(); !done || !errors.Is(err, why) {
						t.Errorf("done %v, %v", done, err)
					}
				}
				if how == "drop" {
					o.got(matched, 1, 2, size)
					for _, s := range []*Request{s, s2} { // which the communicator's end does not keep waiting
						o.sent(s)
					}
					if n := o.e.Glance().Taken; n != 2 {
						t.Errorf("2 messages were sent, and %d are taken", n)
					}
				}
				o.checkLog() // nothing is asked for twice
				if len(o.nic.entries) != 0 {
					t.Errorf("%d receives are left in the NIC", len(o.nic.entries))
				}
				if n := o.e.Pending(); n != 0 {
					t.Errorf("%d operations are under way", n)
				}
			})
		}
	}
}

// A device that cannot finish what it has matched.
func TestOffloadDoneWithError(t *testing.T) {
	o := linked(t, slowly)
	r, other := o.recv(1, 7, 300), o.recv(1, 8, 300)
	o.nic.runOp()
	o.send(1, 7, 20)
	o.net.deliver(0, 1)
	o.nic.running = nil
	o.net.hostile = true // the credit goes with the connection
	for _, e := range o.nic.entries {
		o.net.devices[0].inbox = append(o.net.devices[0].inbox, transport.Packet{Event: transport.OffloadDone, Peer: 1, Cookie: e.cookie, Err: transport.ErrPeerGone})
	}
	o.e.lock()
	o.e.progress()
	o.e.unlock()
	for _, r := range []*Request{r, other} {
		var pe *PeerError
		done, _, err := r.Test()
		if !done || !errors.As(err, &pe) || pe.Rank != 1 || !errors.Is(err, transport.ErrPeerGone) {
			t.Errorf("done %v, %v", done, err)
		}
	}
	o.nic.ops = nil
}

// A device that does not take what it has said it would: no message is overtaken, at worst its sender has failed.
func TestR3Refused(t *testing.T) {
	for _, c := range []struct {
		tag  int32
		fail bool
	}{{8, false}, {7, true}, {AnyTag, true}} {
		o := linked(t, slowly)
		r, younger := o.recv(1, 7, 300), o.recv(1, c.tag, 300)
		first := o.nic.ops[0].e
		o.nic.ops = o.nic.ops[1:]
		o.nic.runOp()
		o.net.devices[0].inbox = append(o.net.devices[0].inbox, transport.Packet{Event: transport.OffloadBack, Cookie: first.cookie})
		o.net.work(0)
		if c.fail {
			o.all()
			for _, r := range []*Request{r, younger} {
				if done, _, err := r.Test(); !done || !errors.Is(err, transport.ErrPeerGone) {
					t.Errorf("done %v, %v", done, err)
				}
			}
			continue
		}
		later := o.recv(1, 7, 300)
		o.fell("[older:1]")
		for _, tag := range []int32{7, 7, 8} {
			o.send(1, tag, 20)
		}
		o.all()
		o.got(r, 1, 7, 20)
		o.got(later, 1, 7, 20)
		o.got(younger, 1, 8, 20)
	}
}

// Only what is counted may be a message of a receive that the device has.
func TestOffloadAround(t *testing.T) {
	o := linked(t)
	r := o.recv(1, 7, 300)
	o.net.hostile = true
	o.net.devices[0].inbox = append(o.net.devices[0].inbox, transport.Packet{Peer: 1, Header: wire.Header{Kind: wire.Eager, Ctx: scriptContext, Tag: 7}})
	o.net.work(0)
	o.all() // the device lets go of it
	if done, _, err := r.Test(); !done || !errors.Is(err, transport.ErrPeerGone) {
		t.Errorf("done %v, %v", done, err)
	}
	o.checkLog("post 4/1/7", "cancel 7")
}

func TestOffloadOff(t *testing.T) {
	o := linked(t, func(n *netOptions, _ *testNIC) { n.off = true })
	r := o.recv(1, 7, 300)
	o.checkLog()
	o.send(1, 7, 20)
	o.all()
	o.got(r, 1, 7, 20)
	o.checkLog("seen")
	o.stats(0, 0, 0, 0)
	o.fell("[]")
}

// Requests of all kinds, with everything posted before it is sent: software has no match.
func TestOffloadEverythingPosted(t *testing.T) {
	for _, size := range []int{0, 20, offloadMin, offloadMin + 1, offloadLong} {
		o := linked(t)
		peer := o.net.engines[1]
		for turn := range 20 {
			persistent := o.e.PrepareRecv(nil, scriptContext, 1, 1, make([]byte, 6000))
			for range 3 {
				if err := persistent.Start(); err != nil {
					t.Fatal(err)
				}
				s := o.send(1, 1, size)
				o.all()
				if done, st, err := persistent.Test(); !done || err != nil || st.Bytes != int64(size) {
					t.Fatalf("turn %d: done %v, %+v, %v", turn, done, st, err)
				}
				o.sent(s)
			}
			if err := persistent.Free(); err != nil {
				t.Fatal(err)
			}
			both := o.e.Isendrecv(nil, scriptContext, 1, 2, contents(0, 2, size), 1, 2, make([]byte, 6000))
			wild := o.recv(1, AnyTag, 6000)
			r := peer.Irecv(nil, scriptContext, 0, 2, make([]byte, 6000))
			s, s2 := o.send(1, 2, size), o.send(1, 9, size)
			o.all()
			o.got(both, 1, 2, size)
			o.got(wild, 1, 9, size)
			o.done(peer, r, 0, 2, size)
			o.sent(s)
			o.sent(s2)
			set := Set{o.recv(1, 3, 6000), o.recv(1, 4, 6000)}
			s = o.send(1, 4, size)
			o.all()
			o.sent(s)
			n := 0
			if _, err := o.e.WaitSome(set, 1, nil, func(i int, st Status, err error) {
				if n++; i != 1 || err != nil || st.Bytes != int64(size) {
					t.Errorf("request %d: %+v, %v", i, st, err)
				}
			}); err != nil || n != 1 {
				t.Fatal(n, err)
			}
			s = o.send(1, 3, size)
			o.all()
			o.got(set[0], 1, 3, size)
			o.sent(s)
		}
		o.stats(20*7, 0, 20*7, 0)
		o.fell("[]")
	}
}

// Nothing is allocated once everything has been used: by the engine for a receive that it hands down, one that is taken
// over, and one that stays with software.
func TestOffloadAllocatesNothing(t *testing.T) {
	dev := &idleNIC{testDevice: &testDevice{net: &testNet{}, over: make(chan struct{})}}
	e := newEngine(Config{Rank: 0, Size: 2, Net: dev, Self: dev, UnexpectedMax: 1 << 20, Lookup: func(ctx context.Context, _ int) ([]byte, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}})
	defer func() {
		e.Fail(errOver)
		e.shut(func() { dev.testDevice.Close() })
	}()
	watchdog(t)
	link := &idleLink{transport.Caps{EagerMax: 256, FragMax: 256, Offload: true}}
	e.lock()
	e.links.peer(1).onConnected(1<<30, link, nil)
	e.unlock()
	buf := make([]byte, 300)
	poll := func(pkts ...transport.Packet) {
		e.lock()
		dev.pkts = append(dev.pkts, pkts...)
		e.progress()
		e.exitCall()
		e.unlock()
	}
	eager := wire.Header{Kind: wire.Eager, Ctx: 1, Tag: 1}
	turn := func() {
		r := e.Irecv(nil, 1, 1, 1, buf)
		poll(transport.Packet{Event: transport.OffloadMatched, Peer: 1, Header: eager, Cookie: dev.cookie}, transport.Packet{Event: transport.OffloadDone, Peer: 1, Header: eager, Cookie: dev.cookie})
		must(t, e, r)
		r = e.Irecv(nil, 1, 1, 1, buf)
		poll(transport.Packet{Event: transport.Unmatched, Peer: 1, Header: eager}, transport.Packet{Event: transport.OffloadBack, Cookie: dev.cookie})
		must(t, e, r)
		r = e.Irecv(nil, 1, 1, 1, buf[:10])
		poll(transport.Packet{Event: transport.Unmatched, Peer: 1, Header: eager})
		must(t, e, r)
		r = e.Irecv(nil, 1, 1, 1, buf)
		if err := r.Cancel(); err != nil {
			t.Error(err)
		}
		poll(transport.Packet{Event: transport.OffloadBack, Cookie: dev.cookie})
		must(t, e, r)
	}
	for range 2 * requestQuarantine {
		turn()
	}
	if n := testing.AllocsPerRun(2000, turn); n != 0 {
		t.Errorf("%v allocations", n)
	}
	if s := e.Stats(); s.OffloadMatches == 0 || s.SoftwareMatches != 2*s.OffloadMatches || s.OffloadTakenBack != 2*s.OffloadMatches {
		t.Errorf("%+v", s)
	}
}

func must(t *testing.T, e *Engine, r *Request) {
	if done, _, err := r.Test(); !done || err != nil {
		t.Fatalf("done %v, %v", done, err)
	}
}

// idleNIC takes everything and says what the test says.
type idleNIC struct {
	*testDevice
	cookie uint64 // of the last receive
	pkts   []transport.Packet
}

func (c *idleNIC) Poll(pkts []transport.Packet) int {
	n := copy(pkts, c.pkts)
	c.pkts = c.pkts[:0]
	return n
}

func (c *idleNIC) Arm(transport.Level) bool { return len(c.pkts) == 0 }

func (c *idleNIC) Facts() *transport.Facts {
	f := c.testDevice.Facts()
	f.Offload = c.offload()
	return f
}

func (c *idleNIC) offload() *transport.Offload {
	return &transport.Offload{Tags: 4, Min: 100, Cancel: func(uint64) {}, Seen: func() {},
		Post: func(_, _ uint64, _ transport.Mem, cookie uint64) transport.Posted {
			c.cookie = cookie
			return transport.PostedDown
		}}
}

type idleLink struct{ caps transport.Caps }

func (l *idleLink) Caps() *transport.Caps             { return &l.caps }
func (l *idleLink) TrySend(*wire.Header, []byte) bool { return true }
