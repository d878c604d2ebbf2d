package auth

import (
	"context"
	"crypto/tls"
	"net"
	"testing"
	"time"
)

// side is a session before TLS, of a side with this secret that has seen that.
func side(t *testing.T, conn net.Conn, secret, seen string, dialled bool) *Session {
	h := rank(1, withTLS, func(h *Handshaker) { h.Secret = known(secret) })
	if err := h.prepare(); err != nil {
		t.Fatal(err)
	}
	s := h.begin(context.Background(), conn)
	s.dialled = dialled
	s.seen.Write([]byte(seen))
	return s
}

// Only processes of the job come in, and only to the handshake that they did before.
func TestTLSBound(t *testing.T) {
	const secret, another = "a secret of thirty-two bytes ...", "another one of thirty-two bytes."
	for _, tc := range []struct {
		name                     string
		dialSecret, acceptSecret string
		dialSaw, acceptSaw       string
		fits                     bool
	}{
		{"the same", secret, secret, "seen", "seen", true},
		{"another secret", secret, another, "seen", "seen", false},
		{"another handshake", secret, secret, "seen", "spliced", false},
	} {
		dc, ac := socketPair(t)
		shake := func(s *Session) error {
			conn, err := s.Finish()
			if err == nil { // in TLS 1.3 a client is ready before the server has looked at its certificate
				conn.SetDeadline(time.Now().Add(hang))
				if _, err = conn.Write([]byte("x")); err == nil {
					_, err = conn.Read(make([]byte, 1))
				}
			}
			s.Conn.Close()
			return err
		}
		done := make(chan error)
		go func() { done <- shake(side(t, ac, tc.acceptSecret, tc.acceptSaw, false)) }()
		derr := shake(side(t, dc, tc.dialSecret, tc.dialSaw, true))
		if aerr := <-done; (derr == nil) != tc.fits || (aerr == nil) != tc.fits {
			t.Errorf("%s: %v, %v", tc.name, derr, aerr)
		}
	}
}

// A client with no certificate, or one that does not name the handshake.
func TestTLSClient(t *testing.T) {
	for name, change := range map[string]func(c *tls.Config){
		"without a certificate": func(c *tls.Config) { c.Certificates = nil },
		"without a protocol":    func(c *tls.Config) { c.NextProtos = nil },
	} {
		dc, ac := socketPair(t)
		s := side(t, ac, "a secret of thirty-two bytes ...", "seen", false)
		c := s.h.tls.Clone()
		c.VerifyConnection = nil
		change(c)
		done := make(chan struct{})
		go func() {
			defer close(done)
			if _, err := s.Finish(); err == nil {
				t.Errorf("%s: came in", name)
			}
			ac.Close()
		}()
		tls.Client(dc, c).Handshake()
		<-done
		dc.Close()
	}
}
