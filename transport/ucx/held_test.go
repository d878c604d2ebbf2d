//go:build ucx && linux && cgo

package ucx

import (
	"bytes"
	"encoding/binary"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gorun-mpi/mpi/internal/testkit/proc"
	"github.com/gorun-mpi/mpi/transport"
)

// numbered is a message of that many bytes that begins with a number.
func numbered(i, size int) []byte {
	b := make([]byte, size)
	binary.LittleEndian.PutUint32(b, uint32(i))
	return b
}

// hold has r hold a send of b to the other rank. It fails if that is not held.
func (r *rank) hold(m transport.Match, b []byte) {
	r.t.Helper()
	r.row.sends = rowMost
	if sent, held := r.TrySend(1-m.Source, m, transport.HostMem(b), false); !sent || !held {
		r.t.Fatalf("sent %v, held %v", sent, held)
	}
	clear(b) // it is the caller's
}

// Messages arrive in the order of their sends, whether these are held, go at once or are long, and past the queue's
// end; receives that are held match in their order.
func TestHeldInOrder(t *testing.T) {
	for _, tls := range []string{"posix,self", "tcp,self"} {
		t.Run(tls, func(t *testing.T) {
			t.Setenv("UCX_TLS", tls)
			a, b := newRank(t, 0), newRank(t, 1)
			a.reach(1, b.Address())
			b.reach(0, a.Address())
			const n = 400
			m := transport.Match{Context: 1, Source: 0, Tag: 1}
			size := func(i int) int {
				switch {
				case i%97 == 96:
					return 100_000 // Send
				case i%31 == 30:
					return 1000 // Send
				}
				return 4 + i%(inlineMax-3)
			}
			in := make([][]byte, n)
			got := make(map[uint64]uint64)
			post := func(i int) {
				in[i] = make([]byte, max(size(i), i%2*1000))
				p, st, err := b.Post(m, transport.HostMem(in[i]), uint64(i), false)
				if err != nil {
					t.Fatal(err)
				}
				if st == transport.Done {
					got[uint64(i)] = uint64(p.Bytes)
				}
			}
			for i := range n / 2 { // the others come before their receives
				post(i)
			}
			ends, most := 0, 0
			for i := range n {
				out := numbered(i, size(i))
				if size(i) <= inlineMax {
					if sent, _ := a.TrySend(1, m, transport.HostMem(out), i%50 == 49); sent {
						clear(out)
						most = max(most, a.w.holds())
						continue
					}
				}
				st, err := a.Send(1, m, transport.HostMem(out), false, uint64(i))
				if err != nil || a.w.holds() > 0 {
					t.Fatalf("send %d leaves %d held: %v", i, a.w.holds(), err)
				}
				if st == transport.Started {
					ends++
				}
			}
			if most != heldSends-1 {
				t.Errorf("at most %d were held at a time", most)
			}
			for range 50 {
				a.poll()
				b.poll()
			}
			for i := n / 2; i < n; i++ {
				post(i)
			}
			for len(got) < n {
				p := b.next(a)
				if p.Err != nil {
					t.Fatalf("%+v", p)
				}
				got[p.Cookie] = p.Header.Len
			}
			for i := range n {
				if number := binary.LittleEndian.Uint32(in[i]); got[uint64(i)] != uint64(size(i)) ||
					number != uint32(i) {
					t.Fatalf("receive %d has message %d, of %d bytes", i, number, got[uint64(i)])
				}
			}
			for ; ends > 0; ends-- {
				if p := a.next(b); p.Err != nil {
					t.Fatal(p.Err)
				}
			}
		})
	}
}

// The first sends in a row go at once, and so do those of a rank that is armed or waits.
func TestNotHeld(t *testing.T) {
	t.Setenv("UCX_TLS", "posix,self") // where a connection takes no time
	a, b := newRank(t, 0), newRank(t, 1)
	a.reach(1, b.Address())
	m := transport.Match{Context: 1, Source: 0, Tag: 1}
	out := transport.HostMem(make([]byte, 8))
	try := func(now bool) (held bool) {
		t.Helper()
		sent, held := a.TrySend(1, m, out, now)
		if !sent {
			t.Fatal("it is not sent")
		}
		return held
	}
	try(true) // the first contact
	a.poll()
	for i := range rowAtOnce {
		if try(false) {
			t.Errorf("send %d in a row is held", i)
		}
	}
	if !try(false) {
		t.Error("no send is held")
	}
	if try(true) || a.w.holds() > 0 {
		t.Errorf("a send whose caller waits leaves %d held", a.w.holds())
	}
	for !a.Arm(transport.Any) {
		a.poll()
	}
	a.row.sends = rowMost
	if try(false) {
		t.Error("a send of an armed rank is held")
	}
	in := transport.HostMem(make([]byte, 8))
	if _, _, err := a.Post(transport.Match{Context: 1, Source: 1, Tag: 2}, in, 1, false); err != nil ||
		a.w.holds() > 0 {
		t.Errorf("a receive of an armed rank: %d held, %v", a.w.holds(), err)
	}
}

// Where a peer's queue is full, held sends leave when it has room, in order. More are held meanwhile, as many as the
// device has memory for; those after them are operations.
func TestHeldForFullPeer(t *testing.T) {
	t.Setenv("UCX_TLS", "posix,self")
	t.Setenv("UCX_POSIX_FIFO_SIZE", "64")
	a, b := newRank(t, 0), newRank(t, 1)
	a.reach(1, b.Address())
	b.reach(0, a.Address())
	m := transport.Match{Context: 1, Source: 0, Tag: 1}
	n, ends := 0, 0
	for ; ends < 100; n++ {
		out := numbered(n, 8)
		if sent, _ := a.TrySend(1, m, transport.HostMem(out), false); sent {
			clear(out)
			continue
		}
		if st, err := a.Send(1, m, transport.HostMem(out), false, uint64(n)); err != nil || st != transport.Started {
			t.Fatal(st, err)
		}
		if ends++; n > 1000 {
			t.Fatal("the peer's queue is not filled")
		}
	}
	if kept := int(a.w.held.kept); a.w.holds() > 0 || kept < 100 || kept > keptMost {
		t.Errorf("%d are held, %d are kept", a.w.holds(), kept)
	}
	in := make([]byte, 8)
	for i := range n {
		if _, st, err := b.Post(m, transport.HostMem(in), 1, false); err != nil || st != transport.Started {
			t.Fatal(st, err)
		}
		if p := b.next(a); p.Err != nil || binary.LittleEndian.Uint32(in) != uint32(i) {
			t.Fatalf("message %d comes in place of %d: %v", binary.LittleEndian.Uint32(in), i, p.Err)
		}
	}
	for ; ends > 0; ends-- {
		if p := a.next(b); p.Err != nil {
			t.Fatal(p.Err)
		}
	}
	for limit := time.Now().Add(patience); a.w.held.kept > 0; a.poll() {
		if b.poll(); time.Now().After(limit) {
			t.Fatalf("%d sends are kept", a.w.held.kept)
		}
	}
	a.hold(m, numbered(n, 8))
}

// A receive that is held can be cancelled and given up; a probe finds what it does not match; Close drops the rest.
func TestHeldReceives(t *testing.T) {
	a, b := newRank(t, 0), newRank(t, 1)
	a.reach(1, b.Address())
	b.reach(0, a.Address())
	for cookie, size := range []int{8, 1000} {
		m := transport.Match{Context: 1, Source: 0, Tag: int32(cookie)}
		for i, end := range []func(){
			func() { b.Cancel(uint64(cookie)) },
			func() { b.Abandon(uint64(cookie), false) },
		} {
			if _, _, err := b.Post(m, transport.HostMem(make([]byte, size)), uint64(cookie), false); err != nil {
				t.Fatal(err)
			}
			if b.w.holds() != 1 {
				t.Fatalf("%d are held", b.w.holds())
			}
			end()
			if p := b.next(); p.Cookie != uint64(cookie) || !errors.Is(p.Err, transport.ErrCancelled) {
				t.Errorf("%d bytes, way %d: %+v", size, i, p)
			}
		}
	}
	for tag := range int32(2) {
		a.hold(transport.Match{Context: 1, Source: 0, Tag: tag}, []byte{1})
	}
	in := []byte{0}
	if _, _, err := b.Post(transport.Match{Context: 1, Source: 0, Tag: 0}, transport.HostMem(in), 1,
		false); err != nil {
		t.Fatal(err)
	}
	for limit := time.Now().Add(patience); ; b.poll() {
		a.poll()
		if f, ok := b.Probe(transport.Match{Context: 1, Source: -1, Tag: -1}, false); ok {
			if f.Tag != 1 {
				t.Errorf("the probe finds what a held receive matches: %+v", f)
			}
			break
		}
		if time.Now().After(limit) {
			t.Fatal("the probe finds nothing")
		}
	}
	if p := b.next(); p.Err != nil || in[0] != 1 {
		t.Errorf("%+v, %d", p, in[0])
	}
	for tag := int32(10); b.w.mayHold(); tag++ {
		size := 8 + int(tag%2)*1000
		m := transport.Match{Context: 1, Source: 0, Tag: tag}
		if _, _, err := b.Post(m, transport.HostMem(make([]byte, size)), uint64(tag), false); err != nil {
			t.Fatal(err)
		}
	}
	for range heldSends - 1 {
		a.hold(transport.Match{Context: 1, Source: 0, Tag: 9}, []byte{1})
	}
	a.Close()
	b.Close()
}

// Where the peer ends while sends to it and receives from it are held, its end is reported, the receives that are given
// up end, and other operations go on.
func TestHeldForTheDead(t *testing.T) {
	for _, far := range []bool{false, true} {
		t.Setenv("UCX_TLS", map[bool]string{true: "tcp,self", false: "posix,self"}[far])
		a, p := newRank(t, 0), proc.Start(t, "dies")
		address := p.Recv()
		if far {
			address = elsewhere(t, address)
		}
		a.reach(1, address)
		m := transport.Match{Context: 1, Source: 0, Tag: 1}
		for range heldSends - 1 {
			a.hold(m, []byte{1})
		}
		p.Kill()
		from := transport.Match{Context: 1, Source: 1, Tag: 1}
		for _, size := range []int{8, 1000} {
			if _, _, err := a.Post(from, transport.HostMem(make([]byte, size)), uint64(size), false); err != nil {
				t.Fatal(err)
			}
		}
		if d := a.next(); d.Event != transport.Down || d.Peer != 1 || !errors.Is(d.Err, transport.ErrPeerGone) {
			t.Fatalf("far %v: %+v", far, d)
		}
		for _, size := range []uint64{8, 1000} {
			a.Abandon(size, false)
			if e := a.next(); e.Event != transport.TaggedDone || e.Cookie != size || e.Err == nil {
				t.Fatalf("far %v: %+v", far, e)
			}
		}
		if sent, held := a.TrySend(1, m, transport.HostMem([]byte{1}), false); sent || held {
			t.Errorf("far %v: sent %v, held %v", far, sent, held)
		}
		a.Close()
	}
}

// A rank that computes after its sends has no more of them held, until it makes a call soon after them again.
func TestRow(t *testing.T) {
	r := row{atOnce: rowAtOnce}
	rows := func(n int, late bool) int {
		for range n {
			r.sends = 1
			r.end(late)
		}
		return r.atOnce
	}
	if n := rows(1, true); n <= 2*rowAtOnce {
		t.Errorf("%d go at once", n)
	}
	if n := rows(100, true); n != rowMost {
		t.Errorf("%d go at once", n)
	}
	r.end(false) // a Poll without sends
	if r.atOnce != rowMost {
		t.Errorf("%d go at once after a Poll", r.atOnce)
	}
	if n := rows(100, false); n != rowAtOnce {
		t.Errorf("%d go at once in the end", n)
	}
}

// A rank that makes no call after it has posted is woken, and armed then. One that calls again is armed late again.
func TestArmedLate(t *testing.T) {
	a, b := newRank(t, 0), newRank(t, 1)
	a.reach(1, b.Address())
	b.reach(0, a.Address())
	var woken atomic.Int32
	b.Facts().Wake[0].Notify(func(bool) { woken.Add(1) })
	m := transport.Match{Context: 1, Source: 0, Tag: 1}
	in, out := make([]byte, 8), bytes.Repeat([]byte{1}, 8)
	for b.poll(); b.reached.some.Load(); b.poll() {
	}
	for round := range 3 {
		if _, _, err := b.Post(m, transport.HostMem(in), 1, false); err != nil || b.w.holds() != 1 {
			t.Fatal(b.w.holds(), err)
		}
		woken.Store(0)
		if !b.Arm(transport.Urgent) || b.armed {
			t.Fatalf("round %d: UCX is armed at once", round)
		}
		for limit := time.Now().Add(patience); woken.Load() == 0; time.Sleep(time.Millisecond) {
			if time.Now().After(limit) {
				t.Fatalf("round %d: the rank is not woken", round)
			}
		}
		b.Disarm()
		for b.poll(); !b.Arm(transport.Urgent); b.poll() {
		}
		if !b.armed || b.w.holds() > 0 {
			t.Errorf("round %d: armed %v, %d held", round, b.armed, b.w.holds())
		}
		if _, err := a.Send(1, m, transport.HostMem(out), false, 1); err != nil {
			t.Fatal(err)
		}
		b.Disarm()
		if p := b.next(a); p.Err != nil || !bytes.Equal(in, out) {
			t.Fatalf("%+v", p)
		}
	}
	b.Arm(transport.Urgent)
	if !b.Arm(transport.Any) || !b.armed {
		t.Error("a rank that waits is not armed")
	}
}

// A rank that has polled and waits again is not late when a timer runs out that was set before.
func TestDeadline(t *testing.T) {
	l := deadline{timer: time.AfterFunc(time.Hour, func() {})} // the test says when it runs out
	defer l.stop()
	polls := func() { l.end(); l.begin() }
	l.begin()
	for range 3 {
		polls()
		if l.passes() {
			t.Error("a rank that has just polled is late")
		}
	}
	if !l.passes() {
		t.Error("a rank that has not polled since is not late")
	}
	l.end()
	if l.passes() {
		t.Error("a rank that does not wait is late")
	}
}
