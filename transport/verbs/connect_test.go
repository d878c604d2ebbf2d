//go:build verbs && linux && cgo

package verbs

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/gorun-mpi/mpi/internal/wire"
	"github.com/gorun-mpi/mpi/transport"
	"github.com/gorun-mpi/mpi/transport/tcp"
)

// rounds is how often something is done: less with -short, and where all of the processor is emulated.
func rounds(n int) int {
	switch {
	case inGuest():
		return max(1, n/20)
	case testing.Short():
		return max(1, n/5)
	}
	return n
}

// Both sides connect at once and send as soon as they can: nothing is lost, doubled or out of order.
func TestFirstMessages(t *testing.T) {
	watchdog(t)
	const first = 3
	for round := range rounds(200) {
		a, b := newEnd(t, 0, 2), newEnd(t, 1, 2)
		address := map[*end][]byte{a: b.Address(), b: a.Address()}
		done := make(chan error, 2)
		for _, e := range []*end{a, b} {
			go func() {
				time.Sleep(time.Duration(round%5) * time.Duration(e.rank) * 300 * time.Microsecond) // one is a little later
				ctx, cancel := context.WithTimeout(context.Background(), patience)
				defer cancel()
				l, err := e.Connect(ctx, 1-e.rank, address[e])
				for i := 0; i < first && err == nil; i++ {
					if !l.TrySend(&wire.Header{Kind: wire.Eager, Tag: int32(i)}, pattern(100*i, uint64(e.rank))) {
						err = errors.New("a fresh link has no room")
					}
				}
				done <- err
			}()
		}
		if err := errors.Join(<-done, <-done); err != nil {
			t.Fatal(err)
		}
		for _, e := range []*end{a, b} {
			for i := range first {
				if p := e.take(transport.Arrived); p.Header.Tag != int32(i) ||
					string(p.Payload) != string(pattern(100*i, uint64(1-e.rank))) {
					t.Fatalf("round %d: rank %d: message %d is %d, %d bytes", round, e.rank, i, p.Header.Tag, len(p.Payload))
				}
			}
		}
		if round%20 == 0 {
			a.noPackets()
			b.noPackets()
		}
		if len(a.sessions) != 1 || len(b.sessions) != 1 {
			t.Fatalf("%d and %d sessions", len(a.sessions), len(b.sessions))
		}
		a.Close()
		b.Close()
	}
}

// connectError is what Connect says, which must come long before its time is up.
func connectError(t *testing.T, e, to *end) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	_, err := e.Connect(ctx, to.rank, to.Address())
	if err == nil || ctx.Err() != nil {
		t.Fatalf("rank %d: Connect to rank %d: %v", e.rank, to.rank, err)
	}
	return err.Error()
}

// A connection of the transport tcp is no control connection, nor the other way round, though both prove the job's
// secret.
func TestControlIsNotTCP(t *testing.T) {
	watchdog(t)
	e := newEnd(t, 0, 2)
	opt := e.opt.Control
	opt.Rank, opt.Protocol = 1, ""
	plain, err := tcp.New(opt)
	if err != nil {
		t.Fatal(err)
	}
	defer plain.Close()
	_, address, err := decodeAddress(e.Address())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if _, err := plain.Connect(ctx, 0, address); err == nil {
		t.Error("a tcp device has connected to a control connection")
	}
	if _, err := e.Connect(ctx, 1, encodeAddress(e.at.layer, plain.Address())); err == nil || ctx.Err() != nil {
		t.Errorf("a control connection to a tcp device: %v", err)
	}
}

// A side that can make no queue pair: Connect says so on both.
func TestNoQueuePair(t *testing.T) {
	watchdog(t)
	for _, first := range []string{"able", "unable"} {
		t.Run(first, func(t *testing.T) {
			able, unable := newEnd(t, 0, 2), newEnd(t, 1, 2)
			unable.at.number = 99 // no such port
			say := func() {
				if err := connectError(t, able, unable); !strings.Contains(err, "its queue pair for this rank: ") ||
					!strings.Contains(err, "a queue pair to INIT: ") {
					t.Errorf("the able one says %q", err)
				}
			}
			if first == "able" {
				say()
			}
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			if _, err := unable.Connect(ctx, 0, able.Address()); !errors.Is(err, transport.ErrUnavailable) ||
				!strings.Contains(err.Error(), "the queue pair with rank 0: making it here: a queue pair to INIT: ") {
				t.Errorf("the other says %v", err)
			}
			if first == "unable" {
				say()
			}
			able.noPackets() // no peer was ever there, so none is down
			unable.noPackets()
			if len(unable.table.Load().all) != 0 {
				t.Error("there is half a session")
			}
		})
	}
}

// What a member of the job says of its queue pair, and what cannot be right, ends the connection at both ends; what
// is of no kind, or comes a second time, changes nothing.
func TestHostileHello(t *testing.T) {
	watchdog(t)
	good := func(d *Device) hello {
		return hello{layer: d.at.layer, mtu: d.at.mtu, reads: 1, lid: d.at.lid, gid: d.at.gid, qpn: 7, slot: slotSize,
			pkey: d.at.pkey.Value}
	}
	for _, c := range []struct {
		what, says string
		bytes      func(d *Device) []byte
	}{
		{"nothing", "at least", func(*Device) []byte { return nil }},
		{"another version", "version 9", func(d *Device) []byte { h := good(d); b := h.encode(); b[0] = 9; return b }},
		{"another link layer", "link layer", func(d *Device) []byte { h := good(d); h.layer ^= 3; return h.encode() }},
		{"other buffers", "buffers of", func(d *Device) []byte { h := good(d); h.slot *= 2; return h.encode() }},
		{"another partition", "in partition 1234 (limited member), this rank in ffff",
			func(d *Device) []byte { h := good(d); h.pkey = 0x1234; return h.encode() }},
		{"no MTU", "MTU 0", func(d *Device) []byte { h := good(d); h.mtu = 0; return h.encode() }},
	} {
		t.Run(c.what, func(t *testing.T) {
			honest, liar := newEnd(t, 0, 2), newEnd(t, 1, 2)
			_, where, _ := decodeAddress(honest.Address())
			if _, err := liar.control.tcp.Connect(t.Context(), 0, where); err != nil {
				t.Fatal(err)
			}
			liar.control.send(0, tagReady, nil) // too early
			liar.control.send(0, tagKnown, nil)
			liar.control.send(0, 77, []byte("this is of no kind"))
			liar.control.send(0, tagHello, c.bytes(liar.Device))
			if err := connectError(t, honest, liar); !strings.Contains(err, c.says) {
				t.Errorf("the honest one says %q, want %q", err, c.says)
			}
			honest.noPackets()
		})
	}
	a, b, ab, ba := two(t)
	h := good(a.Device)
	for _, again := range [][]byte{nil, h.encode()} {
		a.control.send(1, tagReady, again)
		a.control.send(1, tagKnown, again)
		a.control.send(1, 77, again)
	}
	a.control.send(1, tagHello, h.encode())
	talk(ab, b)
	talk(ba, a)
	a.noPackets()
	b.noPackets()
}

// A peer that stops in the middle of connecting: Connect ends with its context, and says where it was.
func TestSilentPeer(t *testing.T) {
	watchdog(t)
	a := newEnd(t, 0, 2)
	mute := newDevice(t, 1, 2)
	defer mute.Close()
	mute.mu.Lock() // it hears, and gets no further
	defer mute.mu.Unlock()
	_, where, err := decodeAddress(mute.Address())
	if err != nil {
		t.Fatal(err)
	}
	// So far it comes, however slow the machine is.
	if _, err := a.control.tcp.Connect(t.Context(), 1, where); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 500*time.Millisecond)
	defer cancel()
	_, err = a.Connect(ctx, 1, mute.Address())
	if !errors.Is(err, transport.ErrTimeout) || !errors.Is(err, context.DeadlineExceeded) ||
		!strings.Contains(err.Error(), "rank 1") {
		t.Errorf("%v", err)
	}
	if err := refusalOf(a, 1, mute.Address()); err == nil || !strings.Contains(err.Error(), "took too long") {
		t.Errorf("a second time: %v", err)
	}
}

func refusalOf(e *end, peer int, address []byte) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if _, err := e.Connect(ctx, peer, address); err != nil {
		return err
	}
	return fmt.Errorf("no error; %w", ctx.Err())
}
