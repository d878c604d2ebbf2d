package tcp

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gorun-mpi/mpi/internal/wire"
	"github.com/gorun-mpi/mpi/transport"
)

// encrypted is a pair of connections with TLS.
func encrypted(t *testing.T) (d, a *handshakeResult) {
	t.Helper()
	dh, ah := rank(1), rank(2)
	dh.TLS, ah.TLS = true, true
	d, a, derr, aerr := both(t, dh, ah)
	if derr != nil || aerr != nil {
		t.Fatal(derr, aerr)
	}
	return d, a
}

// After adopt a record that comes byte by byte is put together over many reads that find nothing.
func TestTLSAdopt(t *testing.T) {
	d, a := encrypted(t)
	var incoming []byte // what the loop has received for d
	d.wire.adopt(func(b []byte) (int, error) {
		n := copy(b, incoming[:min(1, len(incoming))])
		incoming = incoming[n:]
		return n, nil
	}, func(b []byte) (int, error) { return len(b), nil })

	message := bytes.Repeat([]byte("0123456789"), 2000) // two records
	var sealed bytes.Buffer
	a.wire.adopt(func([]byte) (int, error) { return 0, errWouldBlock }, sealed.Write)
	if _, err := a.tls.Write(message); err != nil {
		t.Fatal(err)
	}
	var got []byte
	blocked := 0
	b := make([]byte, 1<<15)
	for _, c := range sealed.Bytes() {
		incoming = append(incoming, c)
		for {
			n, err := d.tls.Read(b)
			got = append(got, b[:n]...)
			if err != nil {
				if ne, ok := errors.AsType[net.Error](err); !ok || !ne.Timeout() || !errors.Is(err, errWouldBlock) {
					t.Fatal(err)
				}
				blocked++
				break
			}
		}
	}
	if !bytes.Equal(got, message) {
		t.Errorf("%d bytes of %d", len(got), len(message))
	}
	if blocked != sealed.Len() {
		t.Errorf("%d reads found nothing, of %d", blocked, sealed.Len())
	}
	d.wire.in = func([]byte) (int, error) { return 0, io.EOF }
	if _, err := d.tls.Read(b); !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Error("at the end:", err)
	}
}

// What the tls.Conn has read together with the handshake's end is there after adopt, without another byte.
func TestTLSAdoptKeeps(t *testing.T) {
	d, a := encrypted(t)
	if _, err := a.tls.Write([]byte("early")); err != nil {
		t.Fatal(err)
	}
	// This read takes all that is there from the socket, and one byte of it from the tls.Conn.
	var b [16]byte
	if _, err := io.ReadFull(d.tls, b[:1]); err != nil {
		t.Fatal(err)
	}
	d.wire.adopt(func([]byte) (int, error) { return 0, nil }, nil)
	if n, err := d.tls.Read(b[1:]); err != nil || string(b[:1+n]) != "early" {
		t.Errorf("%q, %v", b[:1+n], err)
	}
	if _, err := d.tls.Read(b[:]); !errors.Is(err, errWouldBlock) {
		t.Error(err)
	}
}

// A record that was changed on the way makes crypto/tls answer with an alert, in Read, while the flush timer sends what
// the socket had no room for.
func TestAlert(t *testing.T) {
	tls := func(o *Options) { o.TLS = true }
	a, b := newDevice(t, 0, 2, tls), newDevice(t, 1, 2, tls)
	defer a.Close()
	defer b.Close()
	var full, changed atomic.Bool
	proceed := make(chan struct{})
	to := between(t, portOf(t, b), func([]byte) {
		if full.Load() {
			<-proceed
		}
	}, func(p []byte) {
		if changed.Load() {
			p[len(p)-1] ^= 1
		}
	})
	defer close(proceed)
	l, err := a.Connect(context.Background(), 1, to(b))
	if err != nil {
		t.Fatal(err)
	}
	back, err := b.Connect(context.Background(), 0, a.Address())
	if err != nil {
		t.Fatal(err)
	}
	full.Store(true)
	payload := make([]byte, eagerMax)
	for l.TrySend(&wire.Header{Kind: wire.Eager}, payload) {
	}
	changed.Store(true)
	back.TrySend(&wire.Header{Kind: wire.Eager}, payload[:1])
	pkts := make([]transport.Packet, 4)
	for end := time.Now().Add(hang); ; {
		if n := a.Poll(pkts); n > 0 && pkts[n-1].Event == transport.Down {
			break
		}
		if time.Now().After(end) {
			t.Fatal("the record is taken")
		}
	}
}
