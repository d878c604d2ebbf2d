package tcp

import (
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

// newTLS makes what all TLS connections of a rank share. All ranks of the job have the same ed25519 key, made of the
// job's secret, and take nobody who has another; the certificate around it says nothing and is looked at by nobody.
func newTLS(secret []byte) (*tls.Config, error) {
	m := hmac.New(sha256.New, secret)
	m.Write([]byte("gorun tcp tls key"))
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
		// A ticket would let somebody in who does not know the key now, and is a record that nobody reads.
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

// encrypt does the TLS handshake on gr.conn. seen is all that both sides have said before. Its hash goes into the
// handshake as an application protocol, so that nobody between two pairs of ranks, who all have the same key, can
// connect the TLS of the one to the handshake of the other.
func encrypt(gr *greeted, shared *tls.Config, seen []byte) error {
	sum := sha256.Sum256(seen)
	bound := "gorun " + hex.EncodeToString(sum[:])
	cfg := shared.Clone()
	cfg.NextProtos = []string{bound}
	key := cfg.VerifyConnection
	cfg.VerifyConnection = func(s tls.ConnectionState) error {
		if s.NegotiatedProtocol != bound {
			return errors.New("the other side's handshake is another one")
		}
		return key(s)
	}
	gr.wire = &switchConn{Conn: gr.conn}
	if gr.dialed {
		gr.tls = tls.Client(gr.wire, cfg)
	} else {
		gr.tls = tls.Server(gr.wire, cfg)
	}
	return gr.tls.Handshake()
}

// switchConn is what a tls.Conn sits on: the connection itself, until adopt. Then whoever has the tls.Conn sees to it
// that nobody reads, writes or sets deadlines through the connection any more.
type switchConn struct {
	net.Conn
	in, out func([]byte) (int, error) // nil before adopt
}

// errWouldBlock is what a read says that finds nothing. It is temporary in the sense of net.Error, so the tls.Conn
// keeps the part of a record that it has, and goes on with it at the next read.
var errWouldBlock net.Error = wouldBlock{}

type wouldBlock struct{}

func (wouldBlock) Error() string   { return "nothing there yet" }
func (wouldBlock) Timeout() bool   { return true }
func (wouldBlock) Temporary() bool { return true }

// adopt replaces the connection. read returns 0 and no error, or errWouldBlock, if nothing is there, and io.EOF at the
// end; write takes everything. Nothing may be under way; afterwards reads and writes are the caller's to order. The
// tls.Conn may already hold bytes that it read behind the handshake, so it must be read once without waiting.
func (s *switchConn) adopt(read, write func([]byte) (int, error)) { s.in, s.out = read, write }

func (s *switchConn) Read(b []byte) (int, error) {
	if s.in == nil {
		return s.Conn.Read(b)
	}
	n, err := s.in(b)
	if n == 0 && err == nil && len(b) > 0 {
		err = errWouldBlock
	}
	return n, err
}

func (s *switchConn) Write(b []byte) (int, error) {
	if s.out == nil {
		return s.Conn.Write(b)
	}
	return s.out(b)
}

// Deadlines have no meaning after adopt: nothing blocks.

func (s *switchConn) SetDeadline(t time.Time) error {
	if s.in != nil {
		return nil
	}
	return s.Conn.SetDeadline(t)
}

func (s *switchConn) SetReadDeadline(t time.Time) error {
	if s.in != nil {
		return nil
	}
	return s.Conn.SetReadDeadline(t)
}

func (s *switchConn) SetWriteDeadline(t time.Time) error {
	if s.in != nil {
		return nil
	}
	return s.Conn.SetWriteDeadline(t)
}
