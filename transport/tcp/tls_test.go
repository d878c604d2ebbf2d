package tcp

import (
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"testing"
	"time"
)

// encrypted is a pair of greeted connections with TLS.
func encrypted(t *testing.T) (d, a *greeted) {
	t.Helper()
	dg, ag := greeterOf(1), greeterOf(2)
	dg.secure, ag.secure = true, true
	d, a, derr, aerr := both(t, dg, ag)
	if derr != nil || aerr != nil {
		t.Fatal(derr, aerr)
	}
	return d, a
}

func TestTLSState(t *testing.T) {
	leavesNothing(t)
	d, a := encrypted(t)
	for _, gr := range []*greeted{d, a} {
		s := gr.tls.ConnectionState()
		if s.Version != tls.VersionTLS13 || s.DidResume || len(s.PeerCertificates) != 1 {
			t.Errorf("%+v", s)
		}
	}
}

// shake does the TLS handshake of two sides that may differ in their secret or in what they have seen.
func shake(t *testing.T, dialSecret, acceptSecret, dialSeen, acceptSeen string) (derr, aerr error) {
	t.Helper()
	dc, ac := socketPair(t)
	limit := time.Now().Add(hang)
	dc.SetDeadline(limit)
	ac.SetDeadline(limit)
	side := func(secret, seen string, gr *greeted) error {
		cfg, err := newTLS([]byte(secret))
		if err != nil {
			return err
		}
		if err = encrypt(gr, cfg, []byte(seen)); err == nil {
			// In TLS 1.3 a client is ready before the server has looked at its certificate.
			if _, err = gr.tls.Write([]byte("x")); err == nil {
				_, err = gr.tls.Read(make([]byte, 1))
			}
		}
		if err != nil {
			gr.conn.Close()
		}
		return err
	}
	done := make(chan error)
	go func() { done <- side(acceptSecret, acceptSeen, &greeted{conn: ac}) }()
	derr = side(dialSecret, dialSeen, &greeted{conn: dc, dialed: true})
	return derr, <-done
}

// Only ranks of the job come in, and only to the handshake that they did before.
func TestTLSStrangers(t *testing.T) {
	leavesNothing(t)
	if d, a := shake(t, "secret", "secret", "seen", "seen"); d != nil || a != nil {
		t.Fatal(d, a)
	}
	if d, a := shake(t, "secret", "another", "seen", "seen"); d == nil || a == nil {
		t.Error("another secret:", d, a)
	}
	if d, a := shake(t, "secret", "secret", "seen", "spliced"); d == nil || a == nil {
		t.Error("another handshake:", d, a)
	}
}

// A client with a certificate of somebody else's, or none, or one that does not name the handshake.
func TestTLSClient(t *testing.T) {
	leavesNothing(t)
	ours, err := newTLS(jobKey)
	if err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(c *tls.Config){
		"without a certificate": func(c *tls.Config) { c.Certificates = nil },
		"without a protocol":    func(c *tls.Config) { c.NextProtos = nil },
	} {
		dc, ac := socketPair(t)
		c := ours.Clone()
		c.VerifyConnection = nil
		change(c)
		done := make(chan struct{})
		go func() {
			defer close(done)
			if err := encrypt(&greeted{conn: ac}, ours, nil); err == nil {
				t.Errorf("%s: came in", name)
			}
			ac.Close()
		}()
		client := tls.Client(dc, c)
		client.Handshake()
		<-done
		dc.Close()
	}
}

// After adopt a record that comes byte by byte is put together over many reads that find nothing.
func TestTLSAdopt(t *testing.T) {
	leavesNothing(t)
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
	leavesNothing(t)
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
	if err := d.tls.SetDeadline(past); err != nil {
		t.Error(err)
	}
}
