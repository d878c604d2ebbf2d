package auth

import (
	"cmp"
	"context"
	"crypto/hkdf"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"fmt"
	"hash"
	"io"
	"net"
	"os"
	"sync"
	"time"
)

// The handshake on a new connection: D has dialled, A accepts.
//
//	D                                                  A
//	│ ── opening: nonce, sealed(ranks, TLS or not) ──► │  A closes without a word if the seal is wrong
//	│ ◄──────────── reply: nonce, sealed(refusal) ──── │  D closes if the seal is wrong
//	│ ── confirmation: sealed(payload of D's) ───────► │  A closes without a word if the seal is wrong
//	│ ◄──────────────── answer: sealed(payload) ────── │  D closes if the seal is wrong
//	│ ◄═════════════ TLS 1.3, if both want ══════════► │  bound to this handshake (tls.go)
//
// A seal is AES-256-GCM under a key of the secret, the protocol's and the job's name, the message's label and all bytes
// that both sides have sent before it on this connection. So only a side that knows the secret can make one; it fits
// into no other place, connection, protocol or job; and with both nonces in it, none can be replayed. The opening alone
// could be: it is answered, and the confirmation cannot follow. (This is AKEP2 of Bellare and Rogaway with sealed
// payloads; docs/decisions/security.md says why it is not Noise.)
//
// Each message is one Write, so that a conn may carry it as one packet. No byte beyond a message is read. Each step has
// a time limit.

// Handshaker does the handshakes of one rank for one protocol, in both roles. All fields are set before the first one.
type Handshaker struct {
	Protocol   string // what is spoken afterwards, with its version
	Job        string
	Rank, Size int                    // a rank of the job below Size, or Launcher; a dialler is one of the ranks
	TLS        bool                   // both sides must want the same
	Secret     func() ([]byte, error) // the job's; called by the first handshake, and may block until it is known
	// Limit is how long a dialler may take to prove itself; 0: 5 s. It may be any process.
	Limit time.Duration
	// Patience is of a step with a side that was dialled, or has proved itself; 0: none, a dialler's context bounds it.
	// A process of the job may stand still for long: in a debugger, or suspended.
	Patience time.Duration

	mu    sync.Mutex  // guards the rest; key and tls do not change any more when there is a key
	key   []byte      // nil: the secret is not known yet
	tls   *tls.Config // nil: no TLS
	noKey error       // why the last look-up of the secret has failed
	again time.Time   // not before, the secret is looked up again
}

// Launcher is the rank of the process that started the job.
const Launcher = 1<<31 - 1

const (
	defaultLimit = 5 * time.Second
	secretMin    = 16 // a shorter secret could be found by trying
)

// lookupPause is how long a failed look-up of the secret stands.
const lookupPause = 250 * time.Millisecond

// prepare fetches the secret and derives the key. It is called by every handshake.
func (h *Handshaker) prepare() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.key == nil && !time.Now().Before(h.again) {
		if h.noKey = h.lookUp(); h.noKey != nil {
			h.again = time.Now().Add(lookupPause)
		}
	}
	if h.key == nil {
		return fmt.Errorf("the job's secret: %w", h.noKey)
	}
	return nil
}

// lookUp makes key and tls. mu is held.
func (h *Handshaker) lookUp() error {
	secret, err := h.Secret()
	if err != nil {
		return err
	}
	if len(secret) < secretMin {
		return fmt.Errorf("it has %d bytes, and at least %d are needed", len(secret), secretMin)
	}
	key, err := hkdf.Key(sha256.New, secret, nil, "gorun auth "+h.Protocol+"\x00"+h.Job, sha256.Size)
	if err == nil && h.TLS {
		h.tls, err = newTLS(key)
	}
	if err != nil {
		return err
	}
	h.key = key
	return nil
}

// Session is a handshake whose other side has proved that it knows the secret. Its owner calls Confirm (the dialler) or
// Answer (the acceptor) once, then Finish; or Close at any time. An error of one of these has closed the connection.
type Session struct {
	Peer    int      // the other side's rank
	Payload []byte   // what the other side sent with its confirmation or its answer
	Conn    net.Conn // the session's until Finish

	h       *Handshaker
	ctx     context.Context
	stop    func() bool   // ends the watch over ctx
	dialled bool          // by this side
	limit   time.Duration // of the step under way; 0: none
	seen    hash.Hash     // of all bytes so far, in both directions
	buf     [messageMax]byte
}

func (h *Handshaker) begin(ctx context.Context, conn net.Conn) *Session {
	stop := context.AfterFunc(ctx, func() { conn.SetDeadline(past) })
	return &Session{Conn: conn, h: h, ctx: ctx, stop: stop, seen: sha256.New()}
}

var past = time.Unix(1, 0)

// Dial proves this side to rank to on conn, which it owns, and returns when that rank has proved itself. ctx bounds the
// session up to Finish.
func (h *Handshaker) Dial(ctx context.Context, conn net.Conn, to int) (*Session, error) {
	s := h.begin(ctx, conn)
	s.Peer, s.dialled = to, true
	if err := s.dial(); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// Accept returns when a dialler of the job has proved itself on conn. One limit is for all of it, so that a byte now
// and then buys no time. After an error conn is still the caller's.
func (h *Handshaker) Accept(conn net.Conn) (*Session, error) {
	s := h.begin(context.Background(), conn)
	if err := s.accept(); err != nil {
		return nil, err
	}
	return s, nil
}

// Confirm sends the dialler's proof with payload, of at most MaxPayload bytes, and receives the acceptor's answer.
func (s *Session) Confirm(payload []byte) error {
	err := s.step(s.h.Patience)
	if err == nil {
		err = s.send(labelConfirmation, payload)
	}
	if err == nil {
		s.Payload, err = s.receive(labelAnswer)
	}
	return s.orClose(err)
}

// Answer sends the acceptor's answer, with payload. The caller may have taken its time to find it.
func (s *Session) Answer(payload []byte) error {
	err := s.step(s.h.Patience)
	if err == nil {
		err = s.send(labelAnswer, payload)
	}
	return s.orClose(err)
}

// Finish returns the connection, a *tls.Conn where both sides wanted TLS. It has no deadline and is the caller's.
func (s *Session) Finish() (conn net.Conn, err error) {
	conn = s.Conn
	if s.h.tls != nil {
		conn, err = s.encrypt()
	}
	s.Conn.SetDeadline(time.Time{})
	if !s.stop() && err == nil {
		err = context.Cause(s.ctx)
	}
	if err != nil {
		s.Conn.Close()
		return nil, err
	}
	return conn, nil
}

// Close ends the session and its connection.
func (s *Session) Close() {
	s.stop()
	s.Conn.Close()
}

func (s *Session) orClose(err error) error {
	if err != nil {
		s.Close()
	}
	return err
}

// step sets the time limit of what comes next; 0: none. The order matters: if the context ends after it has been looked
// at, its AfterFunc sets the deadline after this.
func (s *Session) step(limit time.Duration) error {
	s.limit = limit
	var end time.Time
	if limit > 0 {
		end = time.Now().Add(limit)
	}
	s.Conn.SetDeadline(end)
	return context.Cause(s.ctx)
}

func (s *Session) dial() error {
	if err := s.h.prepare(); err != nil {
		return err
	}
	if err := s.step(s.h.Patience); err != nil {
		return err
	}
	n := s.putFirst(labelOpening, identity{from: s.h.Rank, to: s.Peer, tls: s.h.TLS}.encode())
	if _, err := s.Conn.Write(s.buf[:n]); err != nil {
		return s.failed(err, Gone)
	}
	if err := s.read(0, preambleSize); err != nil {
		return s.failed(err, Gone)
	}
	switch v, ok := versionIn(s.buf[:preambleSize]); {
	case !ok:
		return &Error{Why: NotGorun, text: "something answered that is not gorun"}
	case v != version:
		return &Error{Why: otherVersion, text: fmt.Sprintf("speaks version %d of the protocol, and this rank version %d: "+
			"all ranks must be built with the same gorun", v, version)}
	}
	if err := s.read(preambleSize, replySize); err != nil {
		return s.failed(err, Gone)
	}
	refusal, ok := s.unseal(labelReply, sealedAt, replySize)
	if !ok {
		return &Error{Why: unproved}
	}
	return s.refused(Reason(refusal[0]))
}

// refused is the error for people that the acceptor's refusal is.
func (s *Session) refused(why Reason) error {
	switch {
	case why == accepted:
		return nil
	case why == otherRank:
		return &Error{Why: why,
			text: fmt.Sprintf("is not %s of this job, or %s is none of its ranks", nameOf(s.Peer), nameOf(s.h.Rank))}
	case why == otherTLS && s.h.TLS:
		return &Error{Why: why, text: "does not want TLS, and this rank does: GORUN_TCP_TLS must be the same for all ranks"}
	case why == otherTLS:
		return &Error{Why: why, text: "wants TLS, and this rank does not: GORUN_TCP_TLS must be the same for all ranks"}
	}
	return &Error{Why: NotGorun, text: fmt.Sprintf("refused the connection (reason %d)", why)}
}

func nameOf(rank int) string {
	if rank == Launcher {
		return "the launcher"
	}
	return fmt.Sprintf("rank %d", rank)
}

func (s *Session) accept() error {
	s.step(cmp.Or(s.h.Limit, defaultLimit))
	c, err := s.hearOpening()
	if err != nil {
		return err
	}
	why := s.h.check(c)
	if _, err := s.Conn.Write(s.buf[:s.putFirst(labelReply, []byte{byte(why)})]); err != nil {
		return s.failed(err, Gone)
	}
	if why != accepted {
		return &Error{Why: why}
	}
	s.Peer = c.from
	s.Payload, err = s.receive(labelConfirmation)
	return err
}

// hearOpening tells a dialler of another version which one this is, so that a user with two versions of a program
// finds out. All other wrong openings get no answer.
func (s *Session) hearOpening() (c identity, err error) {
	if err := s.read(0, 1); err != nil {
		return c, s.failed(err, silent)
	}
	if err := s.read(1, preambleSize); err != nil {
		return c, s.failed(err, NotGorun)
	}
	switch v, ok := versionIn(s.buf[:preambleSize]); {
	case !ok:
		return c, &Error{Why: NotGorun}
	case v != version:
		s.Conn.Write(preamble[:])
		return c, &Error{Why: otherVersion}
	}
	if err := s.read(preambleSize, openingSize); err != nil {
		return c, s.failed(err, NotGorun)
	}
	if err := s.h.prepare(); err != nil {
		return c, &Error{Why: helpless, err: err}
	}
	b, ok := s.unseal(labelOpening, sealedAt, openingSize)
	if !ok {
		return c, &Error{Why: unproved}
	}
	return decodeClaim(b), nil
}

// check compares what a dialler of the job claims with what this side is.
func (h *Handshaker) check(c identity) Reason {
	switch {
	case c.to != h.Rank, c.from == h.Rank, c.from >= h.Size:
		return otherRank
	case c.tls != h.TLS:
		return otherTLS
	}
	return accepted
}

// send writes a confirmation or an answer.
func (s *Session) send(label string, payload []byte) error {
	if _, err := s.Conn.Write(s.buf[:s.putPayload(label, payload)]); err != nil {
		return s.failed(err, Gone)
	}
	return nil
}

// receive reads one. Its length may be used before its seal has been looked at, and is bounded.
func (s *Session) receive(label string) ([]byte, error) {
	if err := s.read(0, 1); err != nil {
		return nil, s.failed(err, Gone)
	}
	if err := s.read(1, lengthSize); err != nil {
		return nil, s.failed(err, NotGorun)
	}
	end, ok := payloadEnd(s.buf[:lengthSize])
	if !ok {
		return nil, &Error{Why: unproved}
	}
	if err := s.read(lengthSize, end); err != nil {
		return nil, s.failed(err, NotGorun)
	}
	payload, ok := s.unseal(label, lengthSize, end)
	if !ok {
		return nil, &Error{Why: unproved}
	}
	return payload, nil
}

// read fills buf[from:to], and reads no byte beyond.
func (s *Session) read(from, to int) error {
	_, err := io.ReadFull(s.Conn, s.buf[from:to])
	return err
}

// failed says what a failed read or write means. why: what it means if the other side has closed.
func (s *Session) failed(err error, why Reason) error {
	switch {
	case s.ctx.Err() != nil:
		return context.Cause(s.ctx)
	case Why(err) != accepted: // the caller's net.Conn knows better
		return err
	case errors.Is(err, os.ErrDeadlineExceeded):
		return &Error{Why: slow, text: fmt.Sprintf("no answer in %v", s.limit), err: err}
	case hungUp(err) && why == Gone:
		return TurnedAway(err)
	case hungUp(err):
		return &Error{Why: why, err: err}
	}
	return &Error{Why: Broken, err: err}
}
