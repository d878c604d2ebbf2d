package tcp

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gorun-mpi/mpi/internal/auth"
	"github.com/gorun-mpi/mpi/internal/wire"
	"github.com/gorun-mpi/mpi/transport"
)

// member connects to d as rank r of its job, and returns what a test can write frames to.
func member(t *testing.T, d *Device, r int) (io.Writer, *handshakeResult) {
	t.Helper()
	nc, err := net.Dial("tcp", portOf(t, d))
	if err != nil {
		t.Fatal(err)
	}
	h := &handshaker{Handshaker: &auth.Handshaker{Protocol: protocol, Job: "test", Rank: r, Size: d.opt.Size,
		TLS: d.opt.TLS, Secret: secret(testSecret), Patience: hang}}
	res, err := h.dial(context.Background(), nc, newToken(), d.opt.Rank, history{dial: 1})
	if err != nil || res.code != accepted {
		t.Fatal(res, err)
	}
	t.Cleanup(res.close)
	if res.tls != nil {
		return res.tls, res
	}
	return res.conn, res
}

// next polls until a packet comes.
func next(t *testing.T, d *Device) transport.Packet {
	t.Helper()
	var p [1]transport.Packet
	for end := time.Now().Add(hang); d.Poll(p[:]) == 0; runtime.Gosched() {
		if time.Now().After(end) {
			t.Fatal("no packet comes")
		}
	}
	return p[0]
}

// sleeps polls until the device can sleep.
func sleeps(t *testing.T, d *Device) {
	t.Helper()
	var p [4]transport.Packet
	for end := time.Now().Add(hang); !d.Arm(transport.Any); time.Sleep(time.Millisecond) {
		if n := d.Poll(p[:]); n > 0 || time.Now().After(end) {
			t.Fatalf("%d packets, the first is %+v; want none, and to sleep", n, p[0])
		}
	}
	d.Disarm()
}

// A peer that stops in the middle of a frame, wherever, keeps this rank neither awake nor from hearing others. What
// comes later completes the frame.
func TestHalfFrame(t *testing.T) {
	payload := []byte("the payload of a frame")
	frame := make([]byte, wire.LongSize)
	frame = append(frame[:putHead(frame, &wire.Header{Kind: wire.Eager, Tag: 7}, len(payload))], payload...)
	for _, secure := range []bool{false, true} {
		d := newDevice(t, 0, 3, func(o *Options) { o.TLS = secure })
		defer d.Close()
		other := newDevice(t, 2, 3, func(o *Options) { o.TLS = secure })
		defer other.Close()
		l, err := other.Connect(context.Background(), 0, d.Address())
		if err != nil {
			t.Fatal(err)
		}
		out, _ := member(t, d, 1)
		for k := 1; k < len(frame); k++ {
			out.Write(frame[:k])
			sleeps(t, d)
			if !l.TrySend(&wire.Header{Kind: wire.Eager, Tag: 8}, payload) {
				t.Fatal("no room")
			}
			if p := next(t, d); p.Peer != 2 || p.Header.Tag != 8 {
				t.Fatalf("after %d bytes of rank 1: %+v", k, p)
			}
			out.Write(frame[k:])
			if p := next(t, d); p.Peer != 1 || p.Header.Tag != 7 || !bytes.Equal(p.Payload, payload) {
				t.Fatalf("after %d bytes and then the rest: %+v", k, p)
			}
		}
	}
}

// A peer that ends in the middle of a frame is gone, and no part of the frame is handed out.
func TestHalfFrameEnds(t *testing.T) {
	frame := make([]byte, wire.LongSize+100)
	putHead(frame, &wire.Header{Kind: wire.RTS, Tag: 7}, 100)
	for _, secure := range []bool{false, true} {
		for _, k := range []int{1, wire.ShortSize, wire.LongSize, len(frame) - 1} {
			t.Run(fmt.Sprintf("TLS %v after %d", secure, k), func(t *testing.T) {
				d := newDevice(t, 0, 2, func(o *Options) { o.TLS = secure })
				defer d.Close()
				out, r := member(t, d, 1)
				out.Write(frame[:k])
				sleeps(t, d)
				r.conn.Close()
				if p := next(t, d); p.Event != transport.Down || p.Peer != 1 {
					t.Errorf("%+v", p)
				}
			})
		}
	}
}

// Frames that a Poll has read, and not handed out for want of room, make no socket readable. A rank that does not poll
// again is woken for them as for those in a socket: with one of them the peer may take a message back.
func TestFramesBehindAPoll(t *testing.T) {
	for _, secure := range []bool{false, true} {
		t.Run(fmt.Sprintf("TLS %v", secure), func(t *testing.T) {
			d := newDevice(t, 0, 2, func(o *Options) { o.TLS = secure })
			defer d.Close()
			out, _ := member(t, d, 1)
			frame := make([]byte, wire.LongSize)
			k := putHead(frame, &wire.Header{Kind: wire.Eager, Tag: 7}, 0)
			out.Write(bytes.Repeat(frame[:k], 20))
			for next(t, d); d.set.any(); {
				next(t, d)
			}
			if !d.left() {
				t.Fatal("all has been handed out")
			}
			woken := make(chan struct{}, 1)
			d.facts.Wake[0].Notify(func(bool) {
				select {
				case woken <- struct{}{}:
				default:
				}
			})
			select {
			case <-woken:
			case <-time.After(hang):
				t.Error("it sleeps on")
			}
		})
	}
}

// A peer that does not read is offered so much and no more, keeps Close from nothing, and gets all that was taken.
func TestReaderAway(t *testing.T) {
	for _, secure := range []bool{false, true} {
		for _, size := range []int{0, coalesceMax, eagerMax, fragMax} {
			t.Run(fmt.Sprintf("TLS %v frames of %d", secure, size), func(t *testing.T) {
				tls := func(o *Options) { o.TLS = secure }
				a, b := newDevice(t, 0, 2, tls), newDevice(t, 1, 2, tls)
				defer b.Close()
				l, err := a.Connect(context.Background(), 1, b.Address())
				if err != nil {
					t.Fatal(err)
				}
				payload := make([]byte, size)
				taken, most := 0, 0
				c := l.(*link).s.conn.Load()
				unix.SetsockoptInt(c.fd, unix.SOL_SOCKET, unix.SO_SNDBUF, 64<<10) // or it takes millions of frames
				// Also what the flush timer makes room for.
				for refused := 0; refused < 3; {
					if l.TrySend(&wire.Header{Kind: wire.Eager, Tag: int32(taken)}, payload) {
						taken++
					} else {
						refused++
						time.Sleep(2 * blockedRetry)
						a.Poll(make([]transport.Packet, 1))
					}
					a.outMu.Lock()
					most = max(most, c.unsent())
					a.outMu.Unlock()
				}
				if bound := coalesceFull + 2*(fragMax+wire.LongSize); most > bound {
					t.Errorf("%d bytes wait for room, want at most %d", most, bound)
				}
				began := time.Now()
				if a.Close(); time.Since(began) > hang {
					t.Errorf("Close has taken %v", time.Since(began))
				}
				for i := range taken {
					if p := next(t, b); p.Event != transport.Arrived || p.Header.Tag != int32(i) || len(p.Payload) != size {
						t.Fatalf("frame %d of %d: %+v", i, taken, p)
					}
				}
				if p := next(t, b); p.Event != transport.Down {
					t.Errorf("after the last: %+v", p)
				}
			})
		}
	}
}
