package auth

import (
	"context"
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"math/big"
	"net"
	"time"
)

// newTLS makes what all TLS connections of a handshaker share. All processes of the job have the same ed25519 key, made
// of the key of the handshakes, and accept no other one; the certificate around it says nothing.
func newTLS(secret []byte) (*tls.Config, error) {
	m := hmac.New(sha256.New, secret)
	m.Write([]byte("gorun auth tls key"))
	key := ed25519.NewKeyFromSeed(m.Sum(nil))
	template := x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Unix(0, 0), NotAfter: time.Unix(1<<32, 0)}
	der, err := x509.CreateCertificate(rand.Reader, &template, &template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	public := key.Public().(ed25519.PublicKey)
	return &tls.Config{
		MinVersion:   tls.VersionTLS13,
		Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}},
		ClientAuth:   tls.RequireAnyClientCert,
		// There is no chain and no name to verify; the key is, by VerifyConnection, which always runs.
		InsecureSkipVerify: true,
		VerifyConnection:   func(s tls.ConnectionState) error { return isOurs(s, public) },
		// A ticket would let in a client that does not know the key now, and is a record that the transport would not
		// read.
		SessionTicketsDisabled: true,
		// Full records at once: small ones are for browsers.
		DynamicRecordSizingDisabled: true,
	}, nil
}

func isOurs(s tls.ConnectionState, ours ed25519.PublicKey) error {
	if len(s.PeerCertificates) == 0 {
		return errors.New("the other side showed no certificate")
	}
	key, ok := s.PeerCertificates[0].PublicKey.(ed25519.PublicKey)
	if !ok || !hmac.Equal(key, ours) {
		return errors.New("the other side's key is not the job's")
	}
	return nil
}

// encrypt does the TLS handshake on the session's connection. The hash of all that both sides have said before goes
// into it as an application protocol: so a process between two pairs of ranks, which all have the same key, cannot
// connect the TLS of the one pair to the handshake of the other.
func (s *Session) encrypt() (net.Conn, error) {
	if err := s.step(s.h.Patience); err != nil {
		return nil, err
	}
	bound := "gorun " + hex.EncodeToString(s.seen.Sum(nil))
	cfg := s.h.tls.Clone()
	cfg.NextProtos = []string{bound}
	key := cfg.VerifyConnection
	cfg.VerifyConnection = func(st tls.ConnectionState) error {
		if st.NegotiatedProtocol != bound {
			return errors.New("the other side's handshake is another one")
		}
		return key(st)
	}
	conn := tls.Server(s.Conn, cfg)
	if s.dialled {
		conn = tls.Client(s.Conn, cfg)
	}
	if err := conn.Handshake(); err != nil {
		if s.ctx.Err() != nil {
			return nil, context.Cause(s.ctx)
		}
		return nil, &Error{Why: Broken, text: "TLS: " + err.Error(), err: err}
	}
	return conn, nil
}
