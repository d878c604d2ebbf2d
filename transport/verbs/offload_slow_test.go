//go:build verbs && !guest && linux && cgo

package verbs

import (
	"bytes"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/gorun-mpi/mpi/internal/wire"
	"github.com/gorun-mpi/mpi/transport"
)

// Receives that the device is to match, whose buffers take long to register.

// While the buffer of a receive is registered that the device is to match, packets go on, and so do other receives. The
// receives of one tag keep their order. Then the device matches.
func TestTaggedBufferIsPrepared(t *testing.T) {
	g := newTaggers(t)
	watchdog(t)
	b := g.end(1)
	first, second, other := make([]byte, 2*registerPiece), make([]byte, eagerMax), make([]byte, eagerMax)
	b.hold("registrations" + fromLong)
	g.post(5, transport.MaskExact, first, 1)
	g.post(5, transport.MaskExact, second, 2)
	g.post(6, transport.MaskExact, other, 3)
	g.settled()
	g.send(eager(6), pattern(100, 1))
	g.matched(3, 6, other, 100, 1)
	g.post(0, transport.MaskAnyTag, other, 4)
	if n := len(g.dev[1].tags.waiting); n != 3 {
		t.Errorf("%d receives wait, want the one that is registered and two behind it", n)
	}
	b.injected("release_registrations")
	for end := time.Now().Add(patience); len(g.dev[1].tags.waiting) > 0; g.poll(1) {
		if time.Now().After(end) {
			t.Fatal("a receive is not handed to the device")
		}
	}
	g.settled()
	for i, buf := range [][]byte{first, second, other} {
		g.send(eager(5), pattern(200, uint64(2+i)))
		g.matched([]uint64{1, 2, 4}[i], 5, buf, 200, uint64(2+i))
	}
}

// end is the device of a rank as the tests of devices have it.
func (g *taggers) end(rank int) *end { return &end{Device: g.dev[rank], t: g.t, rank: rank} }

// matched checks that the device has matched the receive of a cookie with an eager message.
func (g *taggers) matched(cookie uint64, tag int32, buf []byte, n int, seed uint64) {
	g.t.Helper()
	g.want(1, "match", g.next(1), transport.Packet{Event: transport.OffloadMatched, Cookie: cookie,
		Header: wire.Header{Tag: tag}})
	g.want(1, "done", g.next(1), transport.Packet{Event: transport.OffloadDone, Cookie: cookie,
		Header: wire.Header{Kind: wire.Eager, Ctx: 3, Tag: tag, Len: uint64(n)}})
	if !bytes.Equal(buf[:n], pattern(n, seed)) {
		g.t.Errorf("receive %d has the wrong bytes", cookie)
	}
}

// A message that comes while its receive's buffer is registered, or cannot be registered, is software's: the engine
// takes the receive back, which comes when the registration is over. The receives behind it go to the device then.
func TestMessageBeforeRegistration(t *testing.T) {
	needSoft(t)
	for _, fails := range []bool{false, true} {
		t.Run(fmt.Sprint("fails ", fails), func(t *testing.T) {
			watchdog(t)
			if fails {
				t.Setenv("SOFTHCA_FAIL", "reg:5") // two are the buffers, one is for probes, and the fourth is the short one
			}
			g := newTaggers(t)
			tags := &g.dev[1].tags
			b := g.end(1)
			before := b.regions()
			first, second := make([]byte, registerPiece), make([]byte, eagerMax)
			b.hold("registrations" + fromLong)
			g.post(5, transport.MaskExact, first, 1)
			for end := time.Now().Add(patience); b.counted("held_registrations") == 0; runtime.Gosched() {
				if time.Now().After(end) {
					t.Fatal("no goroutine registers the buffer")
				}
			}
			g.post(5, transport.MaskExact, second, 2)
			if fails {
				b.injected("release_registrations")
				for end := time.Now().Add(patience); tags.all[tags.byCookie[1]].memory == memoryComing; g.poll(1) {
					if time.Now().After(end) {
						t.Fatal("the registration does not end")
					}
				}
			}
			g.send(eager(5), pattern(100, 1))
			if p := g.next(1); p.Event != transport.Unmatched || !bytes.Equal(p.Payload, pattern(100, 1)) {
				t.Fatalf("%+v", p)
			}
			off := g.dev[1].Facts().Offload
			off.Cancel(1)
			off.Cancel(1)
			off.Seen()
			if !fails {
				g.poll(1)
				if len(g.in[1]) != 0 {
					t.Fatalf("%+v, and the buffer is being registered", g.in[1])
				}
				b.injected("release_registrations")
			}
			if p := g.next(1); p.Event != transport.OffloadBack || p.Cookie != 1 {
				t.Errorf("%+v", p)
			}
			g.settled()
			g.send(eager(5), pattern(200, 2))
			g.matched(2, 5, second, 200, 2)
			g.dev[1].later.settle()
			if n := b.regions(); n != before {
				t.Errorf("%d regions, %d before", n, before)
			}
		})
	}
}

// A receive that waits behind another one is taken back at once, and one that is registered when the device fails or is
// closed ends with it.
func TestWaitingReceiveEnds(t *testing.T) {
	needSoft(t)
	for what, happens := range map[string]func(g *taggers, b *end){
		"the device fails": func(_ *taggers, b *end) { b.injected("device_fatal") },
		"the peer ends":    func(g *taggers, _ *end) { g.dev[0].Close() },
		"the rank ends":    nil,
	} {
		t.Run(what, func(t *testing.T) {
			watchdog(t)
			g := newTaggers(t)
			b := g.end(1)
			b.hold("registrations" + fromLong)
			g.post(5, transport.MaskExact, make([]byte, registerPiece), 1)
			g.post(5, transport.MaskExact, make([]byte, eagerMax), 2)
			off := g.dev[1].Facts().Offload
			off.Cancel(2)
			if p := g.next(1); p.Event != transport.OffloadBack || p.Cookie != 2 {
				t.Fatalf("%+v", p)
			}
			if happens == nil {
				return
			}
			happens(g, b)
			if p := g.next(1); p.Event != transport.Down {
				t.Fatalf("%+v", p)
			}
			off.Cancel(1)
			b.injected("release_registrations")
			if p := g.next(1); p.Event != transport.OffloadBack || p.Cookie != 1 {
				t.Errorf("%+v", p)
			}
			g.dev[1].later.settle()
			if tags := &b.tags; len(tags.waiting)+len(tags.byCookie) != 0 {
				t.Errorf("%d receives wait, of %d", len(tags.waiting), len(tags.byCookie))
			}
		})
	}
	collect()
}
