package tcp

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/gorun-mpi/mpi/internal/auth"
)

// The payloads of the handshake between two ranks, after each has proved itself (internal/auth). Numbers are
// little-endian; a card has at most cardMax bytes.
//
//	confirmation   history │ card
//	answer         code, u8 │ card
//	history        frames sent, u64 │ frames received, u64 │ number of this dial, u64 │
//	               number of the acceptor's last dial that the dialler has accepted, u64
const (
	protocol    = "gorun tcp 4"
	historySize = 4 * 8

	// cardMax is the longest card: what transport.Introducer allows, and this device's own address (card.go).
	cardMax = 1<<10 + 2 + addressMax
	_       = uint(auth.MaxPayload - historySize - cardMax)
)

// history is what a dialler says of what it has had with the acceptor so far.
type history struct {
	sent, received uint64 // frames
	dial           uint64 // its dials, of which this is the last; 1 is the first
	accepted       uint64 // the last of the acceptor's dials that it has accepted; 0: none
}

// code is what the acceptor says to a dialler.
type code uint8

const (
	accepted code = iota + 1 // this is our connection
	crossing                 // my own connection to you is on its way and is the one; wait for it
	mismatch                 // frames were lost with the last connection, so this peer is over
	closing                  // I am closing my device
)

// handshaker does the handshakes of one rank. All fields but the card are set before the first one.
type handshaker struct {
	*auth.Handshaker
	// admit says what becomes of a dialler. It is called from several goroutines, and may block; the dialler waits for
	// the length of a step.
	admit func(peer int, of history) code
	// dropped is called if judge has said accepted and the connection broke before the handshake was over.
	dropped func(peer int)
	card    atomic.Pointer[[]byte] // what this rank introduces itself with
}

// handshakeResult is what a handshake has come to. Its owner closes it.
type handshakeResult struct {
	peer   int
	code   code
	conn   net.Conn // without deadlines; nil, and closed, unless code is accepted
	fd     int      // conn's descriptor once more, for when package net is done with it; 0: none
	tls    *tls.Conn
	wire   *switchConn // what tls sits on; nil without TLS
	card   []byte      // the peer's; nil: it has none
	dialed bool        // by this side
	number uint64      // of the dial, by the side that has dialled
}

// close closes what is there.
func (r *handshakeResult) close() {
	if r.conn != nil {
		r.conn.Close()
	}
	if r.fd != 0 {
		unix.Close(r.fd)
	}
}

// token is shared by the connections that one call dials at the same time: the one that has it may prove itself, so
// that the acceptor never sees two proofs of them. After an answer it is not given back: the others will not prove any
// more.
type token chan struct{}

func newToken() token {
	t := make(token, 1)
	t <- struct{}{}
	return t
}

// introduce sets the card. It belongs to the handshaker from then on.
func (h *handshaker) introduce(card []byte) {
	if len(card) > cardMax {
		panic(fmt.Sprintf("tcp: a card of %d bytes, the longest has %d", len(card), cardMax))
	}
	h.card.Store(&card)
}

func (h *handshaker) withCard(b []byte) []byte {
	if card := h.card.Load(); card != nil {
		return append(b, *card...)
	}
	return b
}

// wrap returns what the handshake runs on.
func (h *handshaker) wrap(nc net.Conn) net.Conn {
	if h.TLS {
		return &switchConn{Conn: nc}
	}
	return nc
}

var errPayload = errors.New("what the peer says in its handshake makes no sense")

// dial is the dialler's side, with peer, on nc, of which it is the owner until it returns a result that is accepted: in
// all other cases nc is closed. The token is taken while the acceptor decides.
func (h *handshaker) dial(ctx context.Context, nc net.Conn, t token, peer int, own history) (*handshakeResult, error) {
	s, err := h.Dial(ctx, h.wrap(nc), peer)
	if err != nil {
		return nil, err
	}
	select {
	case <-t:
	case <-ctx.Done():
		s.Close()
		return nil, context.Cause(ctx)
	}
	r, err := h.confirm(s, own)
	if err != nil {
		t <- struct{}{} // the connection is closed: another one may prove itself
		return nil, err
	}
	return r, nil
}

// confirm proves this side; the token is held.
func (h *handshaker) confirm(s *auth.Session, own history) (*handshakeResult, error) {
	if err := s.Confirm(h.withCard(own.encode())); err != nil {
		return nil, err
	}
	if len(s.Payload) == 0 || code(s.Payload[0]) < accepted || code(s.Payload[0]) > closing {
		s.Close()
		return nil, errPayload
	}
	r := &handshakeResult{peer: s.Peer, code: code(s.Payload[0]), card: orNil(s.Payload[1:]),
		dialed: true, number: own.dial}
	return r, r.finish(s)
}

// answer is the acceptor's side, from where the dialler has proved itself.
func (h *handshaker) answer(s *auth.Session) (*handshakeResult, error) {
	hist, card, ok := decodeHistory(s.Payload)
	if !ok {
		s.Close()
		return nil, errPayload
	}
	r := &handshakeResult{peer: s.Peer, card: card, number: hist.dial}
	r.code = h.admit(s.Peer, hist)
	err := s.Answer(h.withCard([]byte{byte(r.code)}))
	if err == nil {
		err = r.finish(s)
	}
	if err != nil && r.code == accepted {
		h.dropped(s.Peer)
	}
	return r, err
}

// finish takes the connection, if it is accepted.
func (r *handshakeResult) finish(s *auth.Session) error {
	if r.code != accepted {
		s.Close()
		return nil
	}
	conn, err := s.Finish()
	if err != nil {
		return err
	}
	r.conn = s.Conn
	if wire, ok := s.Conn.(*switchConn); ok {
		r.conn, r.wire, r.tls = wire.Conn, wire, conn.(*tls.Conn)
	}
	return nil
}

func (h *history) encode() []byte {
	b := make([]byte, 0, historySize+cardMax)
	for _, v := range []uint64{h.sent, h.received, h.dial, h.accepted} {
		b = binary.LittleEndian.AppendUint64(b, v)
	}
	return b
}

func decodeHistory(b []byte) (h history, card []byte, ok bool) {
	if len(b) < historySize {
		return h, nil, false
	}
	for i, v := range []*uint64{&h.sent, &h.received, &h.dial, &h.accepted} {
		*v = binary.LittleEndian.Uint64(b[8*i:])
	}
	return h, orNil(b[historySize:]), true
}

func orNil(b []byte) []byte {
	if len(b) == 0 {
		return nil
	}
	return b
}
