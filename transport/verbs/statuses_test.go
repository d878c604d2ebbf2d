//go:build verbs && !guest && linux && cgo

package verbs

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/gorun-mpi/mpi/internal/wire"
	"github.com/gorun-mpi/mpi/transport"
	"github.com/gorun-mpi/mpi/transport/transporttest"
)

// The statuses and locks of rdma-core's provider mlx5, which SOFTHCA_MODE=mlx5 imitates.

func asMLX5(t *testing.T) {
	needSoft(t)
	t.Setenv("SOFTHCA_MODE", "mlx5")
}

// failsAt1 has the device of rank 1 fail as SOFTHCA_FAIL says. Rank 0's is open by then.
func failsAt1(t *testing.T, what string) func(*Options) {
	return func(o *Options) {
		if o.Rank == 1 {
			t.Setenv("SOFTHCA_FAIL", what)
		}
	}
}

// The whole suite over devices that report as mlx5 does.
func TestConformanceMLX5(t *testing.T) {
	asMLX5(t)
	transporttest.Run(t, pair(tagsOn), suite(transporttest.Has(transporttest.Offload), transporttest.Brief())...)
}

// A rendezvous that the device has given up is a failure of the peer, whatever lies in the buffer: mlx5 gives it the
// status of an offer that is left to software.
func TestRendezvousGivenUp(t *testing.T) {
	asMLX5(t)
	stale := func(g *taggers, b []byte) { // an offer of a message before, with the same tag and number
		h := wire.Header{Kind: wire.RTS, Flags: wire.Urgent | wire.Readable, Ctx: 3, Tag: 5, ID: 9, Len: 1 << 20,
			Addr: 4096, Key: 1}
		g.link[0].(*link).s.frame(b, &h, nil)
	}
	for name, fill := range map[string]func(g *taggers, b []byte){
		"zero": func(*taggers, []byte) {},
		"user": func(_ *taggers, b []byte) { copy(b, bytes.Repeat([]byte("A"), len(b))) },
		"old":  stale,
	} {
		t.Run(name, func(t *testing.T) {
			watchdog(t)
			g := newTaggers(t, failsAt1(t, "read:1"))
			body, buf := pattern(1<<20, 1), make([]byte, 1<<20)
			fill(g, buf)
			g.post(5, transport.MaskExact, buf, 77)
			g.settled()
			addr, key, _ := g.link[0].Caps().RMA.Register(transport.HostMem(body), transport.Readable)
			g.send(wire.Header{Kind: wire.RTS, Flags: wire.Urgent | wire.Readable, Ctx: 3, Tag: 5, ID: 9,
				Len: uint64(len(body)), Addr: addr, Key: key}, nil)
			g.want(1, "match", g.next(1), transport.Packet{Event: transport.OffloadMatched, Cookie: 77,
				Header: wire.Header{Tag: 5}})
			if p := g.next(1); p.Event != transport.OffloadDone || !errors.Is(p.Err, transport.ErrPeerGone) {
				t.Errorf("event %d, %+v, %v; want OffloadDone with an error", p.Event, p.Header, p.Err)
			}
			for rank := range g.dev {
				if p := g.next(rank); p.Event != transport.Down || !errors.Is(p.Err, transport.ErrPeerGone) {
					t.Errorf("rank %d: event %d, %+v, %v; want Down", rank, p.Event, p.Header, p.Err)
				}
			}
			if d := g.dev[1]; len(d.tags.free) != len(d.tags.all) || d.counted(t, "mrs") != 3 {
				t.Errorf("%d of %d entries are free, %d regions are left", len(d.tags.free), len(d.tags.all), d.counted(t, "mrs"))
			}
		})
	}
}

// counted is a counter of the software HCA.
func (d *Device) counted(t *testing.T, name string) uint64 {
	t.Helper()
	n, err := d.hca.counter(name)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// An offer whose match completes before its bytes are in the buffer is read when they are.
func TestOfferInTwoSteps(t *testing.T) {
	asMLX5(t)
	watchdog(t)
	TestRendezvousTooLong(t)
}

// A completion that cannot be read is a failure of the device: what came before it is handed out, each session ends,
// and the queue can be polled on.
func TestPollFails(t *testing.T) {
	needSoft(t)
	for _, c := range []struct {
		name  string
		first int // that cannot be read
		arm   bool
	}{{"start", 1, false}, {"next", 3, false}, {"arm", 1, true}} {
		t.Run(c.name, func(t *testing.T) {
			watchdog(t)
			g := newTaggers(t, failsAt1(t, fmt.Sprintf("poll:%d", c.first)))
			for i := range 6 {
				g.send(eager(int32(i)), pattern(10, uint64(i)))
			}
			g.dev[0].deliver(time.Now().Add(patience))
			for c.arm && g.dev[1].Arm(transport.Any) {
				g.dev[1].Disarm()
			}
			for i := range c.first - 1 {
				if p := g.next(1); p.Event != transport.Unmatched || int(p.Header.Tag) != i {
					t.Errorf("message %d: event %d, %+v, %v", i, p.Event, p.Header, p.Err)
				}
			}
			p := g.next(1)
			for p.Event == transport.Unmatched {
				p = g.next(1)
			}
			const why = "polling the completion queue: input/output error"
			if p.Event != transport.Down || !strings.Contains(p.Err.Error(), why) {
				t.Errorf("event %d, %+v, %v; want Down for a failed poll", p.Event, p.Header, p.Err)
			}
			if p := g.next(0); p.Event != transport.Down {
				t.Errorf("the other end: event %d, %+v", p.Event, p.Header)
			}
		})
	}
}

// An error of a tagged buffer names a buffer of the receive queue, which the device still has. It is not posted again,
// or two messages would lie in it; and the receive that the message was for ends.
func TestErrorNamesAnotherBuffer(t *testing.T) {
	asMLX5(t)
	watchdog(t)
	hub, good, bad, _, good2hub, _ := three(t, tagsOn)
	bad2hub := bad.link(hub)
	packed, _ := transport.PackTag(3, 2, 7)
	buf := make([]byte, 64)
	if got := hub.tags.post(packed, transport.MaskExact, transport.HostMem(buf), 5); got != transport.PostedDown {
		t.Fatal(got)
	}
	hub.until("the list", func() bool { return hub.tags.ops == 0 })
	send(t, bad2hub, eager(7), pattern(100, 1))
	hub.down(2)
	bad.down(0)
	hub.tags.cancel(5) // as the engine does for all receives of a peer that is down
	if p := hub.take(transport.OffloadDone); p.Cookie != 5 || !errors.Is(p.Err, transport.ErrPeerGone) {
		t.Errorf("the receive: cookie %d, %v", p.Cookie, p.Err)
	}
	// All buffers go round. If one is posted twice, its places are near each other, and both get a message of one round.
	hear := func(n int) {
		for i := range n {
			p := hub.take(transport.Unmatched)
			if int(p.Header.Tag) != i || !bytes.Equal(p.Payload, pattern(500, uint64(i))) {
				t.Fatalf("message %d of %d: tag %d, or another's payload", i, n, p.Header.Tag)
			}
			hub.tags.sawOne()
		}
	}
	for _, n := range []int{3 * giveBackAt, receives / 2, receives / 2} {
		for i := range n {
			send(t, good2hub, eager(int32(i)), pattern(500, uint64(i)), good)
		}
		good.deliver(time.Now().Add(patience))
		hear(n)
	}
	hub.noPackets()
	if got := hub.recv.posted + len(hub.recv.lent) + len(hub.recv.owed); got != hub.recv.count {
		t.Errorf("%d buffers of %d", got, hub.recv.count)
	}
}

// An error of what the device asks by itself has no number of the program's. It ends the session whose queue pair it
// is of, and no other.
func TestErrorOfTheDevicesOwnRequest(t *testing.T) {
	asMLX5(t)
	watchdog(t)
	hub, good, bad, to, from, _ := three(t, tagsOn)
	bad2hub := bad.link(hub)
	send(t, to, wire.Header{Kind: wire.Eager}, []byte("request 0 of session 0 is under way"))
	good.take(transport.Unmatched)
	packed, _ := transport.PackTag(3, 2, 5)
	buf := make([]byte, 1<<20)
	if got := hub.tags.post(packed, transport.MaskExact, transport.HostMem(buf), 77); got != transport.PostedDown {
		t.Fatal(got)
	}
	hub.until("the list", func() bool { return hub.tags.ops == 0 })
	// The memory is not registered.
	send(t, bad2hub, wire.Header{Kind: wire.RTS, Flags: wire.Urgent | wire.Readable, Ctx: 3, Tag: 5, ID: 9, Len: 1 << 20,
		Addr: 4096, Key: 12345}, nil)
	hub.take(transport.OffloadMatched)
	if p := hub.take(transport.OffloadDone); p.Cookie != 77 || p.Err == nil {
		t.Errorf("%+v, %v", p.Header, p.Err)
	}
	hub.down(2)
	send(t, from, wire.Header{Kind: wire.CTS}, nil)
	hub.take(transport.Arrived)
	send(t, to, wire.Header{Kind: wire.CTS}, nil)
	good.take(transport.Arrived)
}

// A TAG_DEL that comes too late can say that entries rest until the device is told how far the engine is.
func TestLateDeletionAsksForSync(t *testing.T) {
	asMLX5(t)
	g := newTaggers(t)
	g.post(1, transport.MaskExact, make([]byte, eagerMax), 5)
	g.settled()
	g.send(eager(8), nil)
	if p := g.next(1); p.Event != transport.Unmatched {
		t.Fatalf("%+v", p)
	}
	g.send(eager(1), nil) // matched, and the engine has not heard of it
	g.dev[0].deliver(time.Now().Add(patience))
	g.dev[1].Facts().Offload.Cancel(5)
	g.settled()
	g.dev[1].Facts().Offload.Seen()
	g.settled()
	if n := g.dev[1].counted(t, "tm_syncs"); n != 1 {
		t.Errorf("%d SYNCs were posted", n)
	}
}

// A SYNC that a message has overtaken leaves entries at rest. It is followed by another.
func TestSyncOvertaken(t *testing.T) {
	needSoft(t)
	for try := 1; ; try++ {
		t.Setenv("SOFTHCA_LIST_DELAY", fmt.Sprint(try*10_000))
		g := newTaggers(t)
		g.send(eager(8), nil)
		for len(g.in[1]) == 0 {
			g.poll(1)
		}
		g.post(1, transport.MaskExact, make([]byte, eagerMax), 5) // rests
		g.settled()
		g.in[1] = nil
		g.dev[1].Facts().Offload.Seen() // SYNC, which the device executes later
		g.send(eager(9), nil)
		g.dev[0].deliver(time.Now().Add(patience))
		g.settled()
		if p := g.next(1); p.Event != transport.Unmatched {
			t.Fatalf("%+v", p)
		}
		g.dev[1].Facts().Offload.Seen()
		g.settled()
		overtaken := g.dev[1].counted(t, "tm_syncs") > 1
		g.send(eager(1), nil)
		if p := g.next(1); p.Event != transport.OffloadMatched {
			t.Fatalf("the entry rests: %+v; %d SYNCs", p, g.dev[1].counted(t, "tm_syncs"))
		}
		if overtaken {
			return
		}
		if try == 20 {
			t.Fatal("no message has overtaken a SYNC")
		}
	}
}

// A device that has failed executes no operation of its list any more. Receives come back that are asked for before its
// end, and after it.
func TestListOfAFailedDevice(t *testing.T) {
	needSoft(t)
	watchdog(t)
	g := newTaggers(t)
	for i := range 3 {
		g.post(int32(i), transport.MaskExact, make([]byte, eagerMax), uint64(i+1))
	}
	g.settled()
	g.inject(1, "pause")
	g.dev[1].Facts().Offload.Cancel(1)
	g.inject(1, "device_fatal")
	g.inject(1, "resume")
	back := map[uint64]bool{}
	for down := false; !down || len(back) < 1; {
		switch p := g.next(1); p.Event {
		case transport.Down:
			down = true
			for i := range 2 {
				g.dev[1].Facts().Offload.Cancel(uint64(i + 2))
			}
		case transport.OffloadBack:
			back[p.Cookie] = true
		}
	}
	for len(back) < 3 {
		if p := g.next(1); p.Event != transport.OffloadBack || back[p.Cookie] {
			t.Fatalf("event %d, %+v, %v", p.Event, p.Header, p.Err)
		} else {
			back[p.Cookie] = true
		}
	}
}

// Sessions that have ended before the device fails do not keep receives in its list: neither where a session ends with
// the device, nor where none is left.
func TestListOfAFailedDeviceWithoutPeers(t *testing.T) {
	needSoft(t)
	for _, left := range []int{1, 0} {
		t.Run(fmt.Sprint(left), func(t *testing.T) {
			watchdog(t)
			hub, one, two, _, _, _ := three(t, tagsOn)
			packed, _ := transport.PackTag(3, 2, 7)
			for cookie := range uint64(2) {
				if got := hub.tags.post(packed, transport.MaskExact, transport.HostMem(make([]byte, 64)),
					cookie); got != transport.PostedDown {
					t.Fatal(got)
				}
			}
			hub.until("the list", func() bool { return hub.tags.ops == 0 })
			one.Close()
			hub.down(1)
			if left == 0 {
				two.Close()
				hub.down(2)
			}
			hub.injected("pause")
			hub.tags.cancel(0)
			hub.injected("device_fatal")
			hub.injected("resume")
			if left == 1 {
				hub.take(transport.Down)
			}
			if p := hub.take(transport.OffloadBack); p.Cookie != 0 {
				t.Errorf("cookie %d", p.Cookie)
			}
			hub.tags.cancel(1)
			if p := hub.take(transport.OffloadBack); p.Cookie != 1 {
				t.Errorf("cookie %d", p.Cookie)
			}
		})
	}
}
