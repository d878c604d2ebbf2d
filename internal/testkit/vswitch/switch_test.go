package vswitch

import (
	"bytes"
	"encoding/binary"
	"io"
	"math"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"
)

// hang is when a test is given up.
const hang = time.Minute

// wire is a port in memory: what is put into in comes in at the switch, and what goes out is in out.
type wire struct {
	in, out chan []byte
	closed  chan struct{}
	once    sync.Once
}

func newWire() *wire {
	return &wire{in: make(chan []byte), out: make(chan []byte, 10000), closed: make(chan struct{})}
}

func (w *wire) Read(b []byte) (int, error) {
	select {
	case f := <-w.in:
		return copy(b, f), nil
	case <-w.closed:
		return 0, io.EOF
	}
}

func (w *wire) Write(b []byte) (int, error) {
	select {
	case w.out <- bytes.Clone(b):
		return len(b), nil
	case <-w.closed:
		return 0, io.ErrClosedPipe
	}
}

func (w *wire) Close() error { w.once.Do(func() { close(w.closed) }); return nil }

// network is a switch of so many ports, each of which has spoken once.
func network(t *testing.T, ports int) (*Switch, []*wire) {
	t.Helper()
	wires := make([]*wire, ports+1)
	var all []Port
	for i := 1; i <= ports; i++ {
		wires[i] = newWire()
		all = append(all, wires[i])
	}
	s := New(all...)
	t.Cleanup(func() { s.Close() })
	for i := 1; i <= ports; i++ {
		wires[i].in <- frame(i, All, nil) // to all, as ARP
		for j := 1; j <= ports; j++ {
			if j != i {
				comes(t, wires[j])
			}
		}
	}
	return s, wires
}

// frame is one of a made-up protocol between two hosts.
func frame(from, to int, payload []byte) []byte {
	b := make([]byte, ethernet, ethernet+len(payload))
	b[5], b[11] = byte(to), byte(from)
	if to == All {
		copy(b, []byte{255, 255, 255, 255, 255, 255})
	}
	return append(b, payload...)
}

func comes(t *testing.T, w *wire) []byte {
	t.Helper()
	select {
	case b := <-w.out:
		return b
	case <-time.After(hang):
		t.Fatal("no frame has come")
		return nil
	}
}

// A frame comes out at the port of its receiver, unchanged, and nowhere else.
func TestForward(t *testing.T) {
	s, w := network(t, 3)
	for _, pair := range [][2]int{{1, 2}, {2, 1}, {3, 1}} {
		want := frame(pair[0], pair[1], []byte("hello"))
		w[pair[0]].in <- want
		if got := comes(t, w[pair[1]]); !bytes.Equal(got, want) {
			t.Errorf("%v: %x, want %x", pair, got, want)
		}
	}
	for i, w := range w[1:] {
		if len(w.out) > 0 {
			t.Errorf("port %d has got another host's frame", i+1)
		}
	}
	if s.Dropped() != 0 {
		t.Errorf("%d frames are dropped", s.Dropped())
	}
}

// What is set for one direction holds for that alone.
func TestOneWay(t *testing.T) {
	s, w := network(t, 2)
	s.Set(1, 2, Faults{Cut: true})
	w[1].in <- frame(1, 2, nil)
	w[2].in <- frame(2, 1, nil)
	comes(t, w[1])
	for end := time.Now().Add(hang); s.Dropped() == 0 && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	s.Set(All, All, Faults{})
	w[1].in <- frame(1, 2, []byte("later"))
	if got := comes(t, w[2]); string(got[ethernet:]) != "later" {
		t.Errorf("%q has passed", got[ethernet:])
	}
	if s.Dropped() != 1 {
		t.Errorf("%d frames are dropped, want 1", s.Dropped())
	}
}

func TestMaxPacket(t *testing.T) {
	s, w := network(t, 2)
	s.Set(1, 2, Faults{MaxPacket: 1400})
	for _, n := range []int{1401, 1400} {
		w[1].in <- frame(1, 2, make([]byte, n))
	}
	if got := comes(t, w[2]); len(got) != ethernet+1400 || s.Dropped() != 1 {
		t.Errorf("a packet of %d bytes has passed, %d are dropped", len(got)-ethernet, s.Dropped())
	}
}

// Loss and repetition are of about the share that was asked for.
func TestLossAndRepeat(t *testing.T) {
	const n = 4000
	s, w := network(t, 2)
	s.Set(1, 2, Faults{Loss: 0.25, Repeat: 0.1})
	for range n {
		w[1].in <- frame(1, 2, nil)
	}
	w[1].in <- frame(1, 1, nil) // what came before has been dealt with
	s.Set(1, 2, Faults{})
	w[1].in <- frame(1, 2, []byte("end"))
	got := 0
	for len(comes(t, w[2])) == ethernet {
		got++
	}
	lost := s.Dropped()
	if math.Abs(float64(lost)-n/4) > n/20 || math.Abs(float64(got)-float64(n-lost)*1.1) > n/20 {
		t.Errorf("of %d frames %d are lost, and %d have come", n, lost, got)
	}
}

// With jitter, frames overtake each other, and none is lost.
func TestJitterReorders(t *testing.T) {
	s, w := network(t, 2)
	s.Set(1, 2, Faults{Delay: time.Millisecond, Jitter: 20 * time.Millisecond})
	var got []byte
	for i := range 100 {
		w[1].in <- frame(1, 2, []byte{byte(i)})
	}
	for range 100 {
		got = append(got, comes(t, w[2])[ethernet])
	}
	if slices.IsSorted(got) {
		t.Error("all frames have come in order")
	}
	slices.Sort(got)
	if len(slices.Compact(got)) != 100 {
		t.Error("some have not come, or twice")
	}
}

// tcpFrame is a segment between two hosts.
func tcpFrame(from, to int, flags byte, six bool) []byte {
	var ip []byte
	b := frame(from, to, nil)
	if six {
		binary.BigEndian.PutUint16(b[12:], 0x86dd)
		ip = make([]byte, 40)
		ip[0], ip[6], ip[7], ip[8], ip[23], ip[24], ip[39] = 0x60, tcp, 64, 0xfd, byte(from), 0xfd, byte(to)
		binary.BigEndian.PutUint16(ip[4:], tcpHeader)
	} else {
		binary.BigEndian.PutUint16(b[12:], 0x0800)
		ip = make([]byte, 20)
		ip[0], ip[8], ip[9], ip[12], ip[15], ip[16], ip[19] = 0x45, 64, tcp, 10, byte(from), 10, byte(to)
		binary.BigEndian.PutUint16(ip[2:], 20+tcpHeader)
	}
	h := make([]byte, tcpHeader)
	binary.BigEndian.PutUint16(h, uint16(1000+from))
	binary.BigEndian.PutUint16(h[2:], uint16(1000+to))
	binary.BigEndian.PutUint32(h[4:], 7)
	h[12], h[13] = tcpHeader/4<<4, flags
	return append(append(b, ip...), h...)
}

// A firewall forgets a flow that has been silent, and passes it when it is made again.
func TestForget(t *testing.T) {
	for _, six := range []bool{false, true} {
		s, w := network(t, 2)
		const forget = 50 * time.Millisecond
		s.Set(All, All, Faults{Forget: forget})
		w[1].in <- tcpFrame(1, 2, syn, six)
		comes(t, w[2])
		w[2].in <- tcpFrame(2, 1, syn|ack, six)
		comes(t, w[1])
		time.Sleep(2 * forget)
		w[1].in <- tcpFrame(1, 2, ack, six)
		w[1].in <- tcpFrame(1, 2, syn, six)
		if got := comes(t, w[2]); got[len(got)-7] != syn || s.Dropped() != 1 {
			t.Errorf("IPv6 %v: a segment with the flags %#x has passed, %d are dropped", six, got[len(got)-7], s.Dropped())
		}
	}
}

// A connection is refused by a segment that its host takes for an answer: addresses, ports, number and sums are right.
func TestRefuse(t *testing.T) {
	for _, six := range []bool{false, true} {
		s, w := network(t, 2)
		s.Set(1, 2, Faults{Refuse: true})
		w[1].in <- tcpFrame(1, 2, syn, six)
		got := comes(t, w[1])
		a, ok := parseTCP(got)
		want := tcpFrame(2, 1, rst|ack, six)
		b, _ := parseTCP(want)
		if !ok || a.flow != b.flow || a.flags != rst|ack || binary.BigEndian.Uint32(got[a.at+8:]) != 8 {
			t.Fatalf("IPv6 %v: %+v", six, a)
		}
		if !bytes.Equal(got[:12], want[:12]) || !bytes.Equal(got[a.at:a.at+4], want[a.at:a.at+4]) {
			t.Errorf("IPv6 %v: it does not come from where the other went: %x", six, got)
		}
		sum := add(0, got[ethernet:a.at])
		if !six && checksum(sum) != 0 {
			t.Errorf("the sum of the IP header is wrong")
		}
		pseudo := got[a.at-8 : a.at]
		if six {
			pseudo = got[a.at-32 : a.at]
		}
		if checksum(add(add(tcp+tcpHeader, pseudo), got[a.at:])) != 0 {
			t.Errorf("IPv6 %v: the sum of the TCP header is wrong", six)
		}
		w[1].in <- tcpFrame(1, 2, ack, six) // what is there goes on
		comes(t, w[2])
	}
}

// What is no whole TCP segment is none.
func TestParseTCP(t *testing.T) {
	for _, six := range []bool{false, true} {
		whole := tcpFrame(1, 2, syn, six)
		for n := range whole {
			if _, ok := parseTCP(whole[:n]); ok {
				t.Errorf("IPv6 %v: %d of %d bytes", six, n, len(whole))
			}
		}
		if s, ok := parseTCP(whole); !ok || s.six != six || s.flow[0].Addr().Compare(netip.Addr{}) == 0 {
			t.Errorf("IPv6 %v: %+v", six, s)
		}
	}
}
