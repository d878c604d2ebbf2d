package looptag

import (
	"bytes"
	"context"
	"errors"
	"testing"

	"github.com/gorun-mpi/mpi/transport"
)

// bench is two ranks of a fabric.
type bench struct {
	*testing.T
	a, b *Device
	pkts [8]transport.Packet
}

func pair(t *testing.T, busy int) *bench {
	f := New(busy)
	b := &bench{T: t, a: f.Device(0), b: f.Device(1)}
	for _, d := range []*Device{b.a, b.b} {
		d.Facts().Wake[0].Notify(func(bool) {})
		for peer, o := range []*Device{b.a, b.b} {
			if err := d.Reach(context.Background(), peer, o.Address()); err != nil {
				t.Fatal(err)
			}
		}
	}
	return b
}

func (b *bench) send(tag int32, data []byte, sync bool, cookie uint64) transport.State {
	b.Helper()
	st, err := b.a.Send(1, transport.Match{Context: 1, Source: 0, Tag: tag}, transport.HostMem(data), sync, cookie)
	if err != nil {
		b.Fatal(err)
	}
	return st
}

func (b *bench) post(source, tag int32, buf []byte, cookie uint64) {
	b.Helper()
	_, st, err := b.b.Post(transport.Match{Context: 1, Source: source, Tag: tag}, transport.HostMem(buf), cookie,
		false)
	if err != nil || st != transport.Started {
		b.Fatalf("Post: %v, %v", st, err)
	}
}

// done is the only event of d.
func (b *bench) done(d *Device, cookie uint64) *transport.Packet {
	b.Helper()
	for i := range b.pkts {
		b.pkts[i] = transport.Packet{Event: 99, Peer: 99, Cookie: 99, Err: errors.ErrUnsupported}
	}
	if n := d.Poll(b.pkts[:]); n != 1 || b.pkts[0].Event != transport.TaggedDone || b.pkts[0].Cookie != cookie {
		b.Fatalf("%d events, %+v, want the end of %d", n, b.pkts[0], cookie)
	}
	return &b.pkts[0]
}

func (b *bench) none(d *Device) {
	b.Helper()
	if n := d.Poll(b.pkts[:]); n != 0 {
		b.Fatalf("%d events, %+v, want none", n, b.pkts[0])
	}
}

// A message finds its receive, whichever is first; the sender of a short one is done at once,
// that of a synchronous or a long one when it is matched.
func TestSendAndPost(t *testing.T) {
	for _, size := range []int{0, 10, keepMax, keepMax + 1, 1 << 20} {
		for _, sync := range []bool{false, true} {
			for _, posted := range []bool{false, true} {
				b := pair(t, 0)
				data, buf := bytes.Repeat([]byte("x"), size), make([]byte, size+1)
				if posted {
					b.post(-1, -1, buf, 7)
					b.none(b.b)
				}
				st := b.send(5, data, sync, 8)
				if waits := !posted && (sync || size > keepMax); (st == transport.Started) != waits {
					t.Fatalf("%d bytes, sync %v, posted %v: the sender's state is %v", size, sync, posted, st)
				}
				if !posted {
					b.none(b.a)
					b.post(0, 5, buf, 7)
				}
				p := b.done(b.b, 7)
				if p.Err != nil || p.Peer != 0 || p.Header.Tag != 5 ||
					p.Header.Len != uint64(size) || !bytes.Equal(buf[:size], data) {
					t.Fatalf("%d bytes: %+v", size, p)
				}
				if st == transport.Started {
					if p := b.done(b.a, 8); p.Err != nil {
						t.Fatal(p.Err)
					}
				}
				b.none(b.a)
				b.none(b.b)
			}
		}
	}
}

// What does not fit is lost, and how long it was is said.
func TestTruncates(t *testing.T) {
	b := pair(t, 0)
	b.send(5, []byte("message"), false, 1)
	buf := []byte("....")
	b.post(0, 5, buf[:3], 7)
	if p := b.done(b.b, 7); p.Header.Len != 7 || string(buf) != "mes." {
		t.Errorf("%q, of %d bytes", buf, p.Header.Len)
	}
}

// A probe leaves a message or takes it; one that is taken is no other receive's.
func TestProbe(t *testing.T) {
	b := pair(t, 0)
	m := transport.Match{Context: 1, Source: -1, Tag: -1}
	if p, ok := b.b.Probe(m, false); ok {
		t.Fatalf("found %+v", p)
	}
	b.send(5, []byte("first"), true, 1)
	b.send(5, []byte("second"), false, 2)
	for _, take := range []bool{false, true} {
		if p, ok := b.b.Probe(m, take); !ok || p.Source != 0 || p.Tag != 5 || p.Bytes != 5 {
			t.Fatalf("found %+v, %v", p, ok)
		}
	}
	b.none(b.a)
	b.a.Cancel(1) // too late
	b.none(b.a)
	buf := make([]byte, 10)
	b.post(0, 5, buf, 7)
	if p := b.done(b.b, 7); string(buf[:p.Header.Len]) != "second" {
		t.Fatalf("%q", buf)
	}
	if _, err := b.b.Take(1, transport.HostMem(buf), 8); err != nil {
		t.Fatal(err)
	}
	if p := b.done(b.b, 8); string(buf[:p.Header.Len]) != "first" {
		t.Fatalf("%q", buf)
	}
	b.done(b.a, 1)
}

// Each operation that is cancelled ends once: cancelled, or as it would have.
func TestCancel(t *testing.T) {
	b := pair(t, 0)
	buf := make([]byte, 10)
	b.post(0, 5, buf, 7)
	b.b.Cancel(7)
	b.b.Cancel(7)
	if p := b.done(b.b, 7); !errors.Is(p.Err, transport.ErrCancelled) {
		t.Fatalf("%+v", p)
	}
	b.send(5, []byte("sync"), true, 1)
	b.a.Cancel(1)
	if p := b.done(b.a, 1); !errors.Is(p.Err, transport.ErrCancelled) {
		t.Fatalf("%+v", p)
	}
	if _, ok := b.b.Probe(transport.Match{Context: 1, Source: 0, Tag: 5}, false); ok {
		t.Fatal("a message that was cancelled is there")
	}
	b.post(0, 5, buf, 8)
	b.send(5, []byte("late"), true, 2)
	b.b.Cancel(8)
	if p := b.done(b.b, 8); p.Err != nil {
		t.Fatalf("%+v", p)
	}
	b.none(b.a)
}

// No wake-up is lost: what has come since the last Poll keeps the device from being armed, an event or not.
func TestArm(t *testing.T) {
	b := pair(t, 0)
	woken := 0
	b.b.notifyBy(func(bool) { woken++ })
	for _, c := range []struct {
		level transport.Level
		woken int
	}{{transport.Any, 1}, {transport.Thread, 1}, {transport.Urgent, 0}} {
		if woken = 0; !b.b.Arm(c.level) {
			t.Fatal("there is nothing, and it is not armed")
		}
		b.send(5, nil, false, 1)
		b.send(5, nil, false, 1)
		if woken != c.woken {
			t.Errorf("level %v: woken %d times, want %d", c.level, woken, c.woken)
		}
		if b.b.Arm(c.level) {
			t.Error("armed although there is something that was not polled")
		}
		b.none(b.b)
	}
	b.b.Arm(transport.Any)
	b.b.Disarm()
	if woken = 0; b.send(5, nil, false, 1) != transport.Done || woken != 0 {
		t.Error("woken although not armed")
	}
}

// A busy device takes what it has refused when it is asked again.
func TestBusy(t *testing.T) {
	b := pair(t, 2)
	full := 0
	for range 10 {
		if b.send(5, nil, false, 1) == transport.Full {
			full++
		}
	}
	if full != 5 {
		t.Errorf("%d of 10 operations were refused, want 5", full)
	}
}

// At the end of a device its peers hear of it, get back what they have sent and is not matched, and cannot reach it.
func TestClose(t *testing.T) {
	b := pair(t, 0)
	b.send(5, make([]byte, keepMax+1), false, 1)
	long := transport.HostMem(make([]byte, keepMax+1))
	st, err := b.b.Send(0, transport.Match{Context: 1, Source: 1, Tag: 5}, long, false, 2)
	if err != nil || st != transport.Started {
		t.Fatal(st, err)
	}
	for range 2 {
		if err := b.b.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if n := b.a.Poll(b.pkts[:]); n != 2 || b.pkts[0].Cookie != 1 || !errors.Is(b.pkts[0].Err, transport.ErrPeerGone) ||
		b.pkts[1].Event != transport.Down || b.pkts[1].Peer != 1 || !errors.Is(b.pkts[1].Err, transport.ErrPeerGone) {
		t.Errorf("%d events: %+v", n, b.pkts[:n])
	}
	if _, ok := b.a.Probe(transport.Match{Context: 1, Source: 1, Tag: 5}, false); ok {
		t.Error("a message is there whose bytes are gone")
	}
	if err := b.a.Reach(context.Background(), 1, b.b.Address()); !errors.Is(err, transport.ErrPeerGone) {
		t.Errorf("Reach: %v", err)
	}
	if _, err := b.a.Send(1, transport.Match{Context: 1}, transport.Mem{}, false, 3); !errors.Is(err, transport.ErrPeerGone) {
		t.Errorf("Send: %v", err)
	}
	if err := b.a.Reach(context.Background(), 0, []byte("elsewhere")); err == nil {
		t.Error("reached a rank of another fabric")
	}
}
