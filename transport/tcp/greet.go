package tcp

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/gorun-mpi/mpi/transport"
)

// The handshake on a new connection. D has dialled, A accepts; greet_messages.go draws the messages.
//
//	D                                              A
//	│ ── hello: who I am, whom I want ───────────► │  a fixed size; if it does not fit, A says why and closes
//	│ ◄──────────────── challenge: a fresh nonce ─ │
//	│ ── proof: HMAC(key, hello, challenge, card)► │  A closes without a word if it is wrong
//	│ ◄─ verdict: code, counts, card, HMAC(all) ── │  D closes if it is wrong
//	│ ◄═══════════ TLS 1.3, if both want ════════► │  bound to this handshake (tls.go)
//
// The nonces of both sides are in both proofs, so nothing can be replayed; the labels differ, so nothing can be sent
// back to where it came from; the ranks are in the hello, so nothing can be used elsewhere. Until a side has proved to
// have the key the other reads nothing of it but these messages, of fixed sizes (a card has at most cardMax bytes), to
// the byte: what follows the verdict is left in the socket. Each step has a time limit.

// greeter does the handshakes of one rank. All fields are set before the first one.
type greeter struct {
	job        string
	rank, size int
	secure     bool                   // TLS is wanted
	secret     func() ([]byte, error) // the job's; called once, at the first handshake, and may block until it is known
	// admit says what becomes of a peer that has proved itself, and how many frames this side has sent and received.
	// It is called from several goroutines, and may block; the dialler waits for the length of a step.
	admit func(h hello) (c code, sent, received uint64)
	// dropped is called if admit has said accepted and the connection broke before the handshake was over, so that it
	// is never delivered. May be nil.
	dropped func(h hello)
	limit   time.Duration // of a step; 0: stepLimit

	card  atomic.Pointer[[]byte] // what this rank introduces itself with, at most cardMax bytes; see introduce
	once  sync.Once              // guards the rest, which does not change afterwards
	key   []byte
	tls   *tls.Config // nil: no TLS
	noKey error
}

// stepLimit is how long the other side may take for one step.
const stepLimit = 5 * time.Second

// cardMax is the longest card: what transport.Introducer allows, and this device's own address (card.go).
const cardMax = 1<<10 + 2 + addressMax

// code is what the acceptor says to a dialler that has proved itself.
type code uint8

const (
	accepted code = iota + 1 // this is our connection
	crossing                 // my own connection to you is on its way and is the one; wait for it
	mismatch                 // frames were lost with the last connection, so this peer is over
	leaving                  // I am closing my device
)

func (c code) String() string {
	switch c {
	case accepted:
		return "accepted"
	case crossing:
		return "crossing"
	case mismatch:
		return "mismatch"
	case leaving:
		return "leaving"
	}
	return fmt.Sprintf("code %d", uint8(c))
}

// greeted is what a handshake has come to. Its owner is whoever gets it, and closes conn.
type greeted struct {
	peer           int
	code           code
	conn           net.Conn // without deadlines; nil, and closed, unless code is accepted
	tls            *tls.Conn
	wire           *switchConn // what tls sits on; nil without TLS
	sent, received uint64      // the peer's frames so far
	card           []byte      // the peer's; nil: it has none
	dialed         bool        // by this side
}

// token is shared by the connections that one call dials at the same time: whoever has it may prove, so that the
// acceptor never sees two proofs of them. After a verdict it is not given back: the others will not prove any more.
type token chan struct{}

func newToken() token {
	t := make(token, 1)
	t <- struct{}{}
	return t
}

// introduce sets the card. It belongs to the greeter from then on.
func (g *greeter) introduce(card []byte) {
	if len(card) > cardMax {
		panic(fmt.Sprintf("tcp: a card of %d bytes, the longest has %d", len(card), cardMax))
	}
	g.card.Store(&card)
}

func (g *greeter) myCard() []byte {
	if card := g.card.Load(); card != nil {
		return *card
	}
	return nil
}

// prepare fetches the secret. It is called by every handshake too, and does something once.
func (g *greeter) prepare() error {
	g.once.Do(func() {
		if g.key, g.noKey = g.secret(); g.noKey != nil {
			return
		}
		if len(g.key) < keyMin {
			g.noKey = fmt.Errorf("it has %d bytes, and at least %d are needed", len(g.key), keyMin)
			return
		}
		if g.secure {
			g.tls, g.noKey = newTLS(g.key)
		}
	})
	if g.noKey != nil {
		return fmt.Errorf("the job's secret: %w", g.noKey)
	}
	return nil
}

// keyMin: a shorter secret could be found by trying.
const keyMin = 16

// reason is why a connection was refused or a handshake failed; porter counts by it.
type reason uint8

const (
	isProper    reason = iota // nothing is wrong
	isStranger                // what came was no hello, or no proof could follow
	isSilent                  // closed before it had said hello
	isSlow                    // did not go on in time
	isOtherVers               // of another version of the protocol
	isOtherJob                // of another job
	isOtherRank               // wants another rank, or is none of the job
	isOtherTLS                // one side wants TLS, the other does not
	isUnproved                // the proof is wrong
	isCrowding                // too many at once; the porter's
	isElsewhere               // came in at an address that is not used; the porter's
	// What follows is not refused: the peer has thought better of it, which happy eyeballs do, or the network broke, or
	// it is this side that cannot.
	isGone
	isBroken
	isHelpless
	reasons
)

// words go after "rank 3" or "10.0.0.7".
var words = [reasons]string{
	isProper:    "is as it should be",
	isStranger:  "spoke something else",
	isSilent:    "closed the connection without a word",
	isSlow:      "did not go on in time",
	isOtherVers: "speaks another version of the protocol",
	isOtherJob:  "is of another job",
	isOtherRank: "wanted another rank of the job, or is none of its ranks",
	isOtherTLS:  "differs about TLS (GORUN_TCP_TLS must be the same for all ranks)",
	isUnproved:  "did not prove the job's secret",
	isCrowding:  "took the place of others (too many connections at once)",
	isElsewhere: "came to an address that is not used (GORUN_TCP_IF)",
	isGone:      "closed the connection",
	isBroken:    "was cut off",
	isHelpless:  "met a rank that could not answer",
}

// greetError is a failed handshake.
type greetError struct {
	why     reason
	text    string // what is known beyond words[why]
	err     error
	timeout bool // the other side did not answer
}

func (e *greetError) Error() string {
	switch {
	case e.text != "":
		return e.text
	case e.err != nil:
		return words[e.why] + ": " + e.err.Error()
	}
	return words[e.why]
}

func (e *greetError) Unwrap() error { return e.err }

func (e *greetError) Is(target error) bool { return e.timeout && target == transport.ErrTimeout }

// errTurnedAway: the other side closed before its verdict. It may have been crowded; trying again may help.
var errTurnedAway = errors.New("closed the connection at once")

// dial is the dialler's side, with peer, on conn, of which it is the owner until it returns a greeted that is
// accepted: in all other cases it is closed. sent and received are this side's counts. The token is taken while the
// acceptor decides.
func (g *greeter) dial(ctx context.Context, conn net.Conn, t token, peer int, sent, received uint64) (*greeted, error) {
	p := g.begin(conn)
	p.ctx = ctx
	stop := context.AfterFunc(ctx, func() { conn.SetDeadline(past) })
	gr, err := p.dial(t, peer, sent, received)
	if !stop() && err == nil {
		err = context.Cause(ctx)
	}
	if err != nil || gr.code != accepted {
		conn.Close()
	}
	if err != nil {
		return nil, err
	}
	return gr, nil
}

// accept is the acceptor's side, and the owner of conn as dial is. The whole of it up to the verdict has one limit.
func (g *greeter) accept(conn net.Conn) (*greeted, error) {
	return g.acceptProving(conn, func() bool { return true })
}

// acceptProving calls proved when the dialler has proved itself; false: it is too late, close.
func (g *greeter) acceptProving(conn net.Conn, proved func() bool) (*greeted, error) {
	p := g.begin(conn)
	gr, err := p.accept(proved)
	if whyOf(err).rude() {
		abort(conn)
	}
	if err != nil || gr.code != accepted {
		conn.Close()
	}
	if err != nil {
		return nil, err
	}
	return gr, nil
}

// rude: who does that is told nothing, and the kernel keeps nothing of the connection.
func (w reason) rude() bool {
	return w == isStranger || w == isSlow || w == isUnproved || w == isCrowding
}

// party is one side of one handshake.
type party struct {
	g     *greeter
	ctx   context.Context // nil for the acceptor
	conn  net.Conn
	limit time.Duration
	msg   [messageMax]byte // the message that is being written or read
	seen  []byte           // all messages so far: what the next proof is about
	space [seenMax]byte    // of seen
}

var past = time.Unix(1, 0)

func (g *greeter) begin(conn net.Conn) *party {
	p := &party{g: g, conn: conn, limit: g.limit}
	if p.limit == 0 {
		p.limit = stepLimit
	}
	p.seen = p.space[:0]
	return p
}

// step sets the time limit of what comes next. The order matters: if the context ends after it has been looked at, then
// dial's AfterFunc sets the deadline after this.
func (p *party) step() error {
	p.conn.SetDeadline(time.Now().Add(p.limit))
	if p.ctx != nil && p.ctx.Err() != nil {
		return context.Cause(p.ctx)
	}
	return nil
}

// read reads n more bytes of the message, of which have are there, and no byte beyond.
func (p *party) read(have, n int) error {
	_, err := io.ReadFull(p.conn, p.msg[have:have+n])
	return err
}

// write sends the first n bytes of the message, which count as seen.
func (p *party) write(n int) error {
	p.saw(n)
	_, err := p.conn.Write(p.msg[:n])
	return err
}

func (p *party) saw(n int) { p.seen = append(p.seen, p.msg[:n]...) }

// failed says what a failed read or write means. why: what it means if the other side has closed.
func (p *party) failed(err error, why reason) error {
	switch {
	case p.ctx != nil && p.ctx.Err() != nil:
		return context.Cause(p.ctx)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return &greetError{why: isSlow, text: fmt.Sprintf("no answer in %v", p.limit), err: err, timeout: true}
	case errors.Is(err, syscall.ETIMEDOUT), errors.Is(err, syscall.EHOSTUNREACH):
		return &greetError{why: isBroken, err: err, timeout: true}
	case hungUp(err):
		return &greetError{why: why, err: err}
	}
	return &greetError{why: isBroken, err: err}
}

// hungUp: the other side has closed the connection, or its process has ended.
func hungUp(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.ErrClosedPipe) ||
		errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

func (p *party) dial(t token, peer int, sent, received uint64) (*greeted, error) {
	if err := p.g.prepare(); err != nil {
		return nil, err
	}
	if err := p.knock(peer, sent, received); err != nil {
		return nil, err
	}
	select {
	case <-t:
	case <-p.ctx.Done():
		return nil, context.Cause(p.ctx)
	}
	gr, err := p.prove(peer)
	if err != nil {
		p.conn.Close() // before another one may prove
		t <- struct{}{}
	}
	return gr, err
}

// knock says hello and takes the challenge.
func (p *party) knock(peer int, sent, received uint64) error {
	g := p.g
	h := hello{version: protocol, tls: g.secure, from: g.rank, to: peer, sent: sent, received: received, job: jobHash(g.job)}
	rand.Read(h.nonce[:])
	if err := p.step(); err != nil {
		return err
	}
	h.encode(&p.msg)
	if err := p.write(helloSize); err != nil {
		return p.turnedAway(err)
	}
	if err := p.read(0, challengeSize); err != nil {
		return p.turnedAway(err)
	}
	p.saw(challengeSize)
	c, ok := decodeChallenge(p.msg[:challengeSize])
	if !ok {
		return &greetError{why: isStranger, text: "something answered that is no rank of gorun"}
	}
	return c.refusal(&h)
}

// turnedAway is failed for what comes before the challenge.
func (p *party) turnedAway(err error) error {
	err = p.failed(err, isGone)
	if whyOf(err) == isGone {
		return turnedAway(err)
	}
	return err
}

// turnedAway: the other side has closed the connection, and that with a reason to try again.
func turnedAway(err error) error {
	return &greetError{why: isGone, text: errTurnedAway.Error(), err: fmt.Errorf("%w: %w", errTurnedAway, err)}
}

// whyOf is the reason of a failed handshake; isProper: err is another error.
func whyOf(err error) reason {
	var e *greetError
	if errors.As(err, &e) {
		return e.why
	}
	return isProper
}

// prove sends the proof and takes the verdict; the token is held.
func (p *party) prove(peer int) (*greeted, error) {
	if err := p.step(); err != nil {
		return nil, err
	}
	n := p.encodeProof(p.g.myCard())
	if err := p.write(n); err != nil {
		return nil, p.unjudged(err)
	}
	if err := p.read(0, verdictSize); err != nil {
		return nil, p.unjudged(err)
	}
	v, ok := decodeVerdict(p.msg[:verdictSize])
	if !ok {
		return nil, &greetError{why: isUnproved}
	}
	if err := p.read(verdictSize, v.cardLen); err != nil {
		return nil, p.unjudged(err)
	}
	n = verdictSize + v.cardLen
	if !p.proven(labelAcceptor, n) {
		return nil, &greetError{why: isUnproved}
	}
	p.saw(n)
	gr := &greeted{peer: peer, code: v.code, sent: v.sent, received: v.received, card: p.card(verdictSize, n), dialed: true}
	if v.code != accepted {
		return gr, nil
	}
	gr.conn = p.conn
	return gr, p.settle(gr)
}

// unjudged is failed for what comes after the challenge.
func (p *party) unjudged(err error) error {
	err = p.failed(err, isGone)
	if whyOf(err) == isGone {
		return &greetError{
			why:  isGone,
			text: "closed the connection when it saw the proof: it has another secret, has ended, or is beset by strangers",
			err:  fmt.Errorf("%w: %w", errTurnedAway, err),
		}
	}
	return err
}

// settle makes an accepted connection what its owner gets: encrypted if so agreed, and without deadlines.
func (p *party) settle(gr *greeted) error {
	if p.g.tls != nil {
		if err := p.step(); err != nil {
			return err
		}
		if err := encrypt(gr, p.g.tls, p.seen); err != nil {
			if p.ctx != nil && p.ctx.Err() != nil {
				return context.Cause(p.ctx)
			}
			return &greetError{why: isBroken, text: "TLS: " + err.Error(), err: err, timeout: errors.Is(err, os.ErrDeadlineExceeded)}
		}
	}
	p.conn.SetDeadline(time.Time{})
	return nil
}

func (p *party) accept(proved func() bool) (*greeted, error) {
	p.step() // this limit is for all up to the verdict: who sends a byte now and then is not given more
	h, err := p.hear()
	if err != nil {
		return nil, err
	}
	if err := p.g.prepare(); err != nil {
		return nil, &greetError{why: isHelpless, err: err}
	}
	if err := p.challenge(isProper); err != nil {
		return nil, p.failed(err, isGone)
	}
	card, err := p.hearProof()
	if err != nil {
		return nil, err
	}
	if !proved() {
		return nil, &greetError{why: isCrowding}
	}
	return p.judge(h, card)
}

// hear reads the hello. One that does not fit is told why, so that somebody with two versions of a program finds out.
func (p *party) hear() (h hello, err error) {
	if err := p.read(0, 1); err != nil {
		return h, p.failed(err, isSilent)
	}
	if err := p.read(1, greetingSize-1); err != nil {
		return h, p.failed(err, isStranger)
	}
	version, ok := decodeGreeting(p.msg[:greetingSize])
	if !ok {
		return h, &greetError{why: isStranger}
	}
	why := isOtherVers // whose hello may have another size
	if version == protocol {
		if err := p.read(greetingSize, helloSize-greetingSize); err != nil {
			return h, p.failed(err, isStranger)
		}
		p.saw(helloSize)
		if h, ok = decodeHello(p.msg[:helloSize]); !ok {
			return h, &greetError{why: isStranger}
		}
		why = p.g.judgeHello(&h)
	}
	if why != isProper {
		p.challenge(why)
		return h, &greetError{why: why}
	}
	return h, nil
}

// judgeHello compares what the hello says with what this rank is.
func (g *greeter) judgeHello(h *hello) reason {
	switch {
	case h.job != jobHash(g.job):
		return isOtherJob
	case h.to != g.rank, h.from == g.rank, h.from >= g.size:
		return isOtherRank
	case h.tls != g.secure:
		return isOtherTLS
	}
	return isProper
}

func (p *party) challenge(why reason) error {
	c := challenge{version: protocol, why: why}
	if why == isProper {
		rand.Read(c.nonce[:])
	}
	c.encode(&p.msg)
	return p.write(challengeSize)
}

func (p *party) hearProof() (card []byte, err error) {
	if err := p.read(0, 1); err != nil {
		return nil, p.failed(err, isGone)
	}
	if err := p.read(1, proofSize-1); err != nil {
		return nil, p.failed(err, isStranger)
	}
	length, ok := decodeProof(p.msg[:proofSize])
	if !ok {
		return nil, &greetError{why: isStranger}
	}
	if err := p.read(proofSize, length); err != nil {
		return nil, p.failed(err, isStranger)
	}
	n := proofSize + length
	if !p.proven(labelDialer, n) {
		return nil, &greetError{why: isUnproved}
	}
	p.saw(n)
	return p.card(proofSize, n), nil
}

// card copies one out of the message.
func (p *party) card(from, to int) []byte {
	if from == to {
		return nil
	}
	return append([]byte(nil), p.msg[from:to]...)
}

// judge tells a proved dialler what becomes of it.
func (p *party) judge(h hello, card []byte) (gr *greeted, err error) {
	var v verdict
	v.code, v.sent, v.received = p.g.admit(h)
	defer func() {
		if err != nil && v.code == accepted && p.g.dropped != nil {
			p.g.dropped(h)
		}
	}()
	p.step() // admit may have taken its time, and who has proved himself may have some
	if err := p.write(p.encodeVerdict(&v, p.g.myCard())); err != nil {
		return nil, p.failed(err, isGone)
	}
	gr = &greeted{peer: h.from, code: v.code, sent: h.sent, received: h.received, card: card}
	if v.code != accepted {
		return gr, nil
	}
	gr.conn = p.conn
	return gr, p.settle(gr)
}

// mac is the proof of one side, over all messages before and what of this one is not the proof itself.
func (p *party) mac(label string, n int) []byte {
	m := hmac.New(sha256.New, p.g.key)
	m.Write([]byte(label))
	m.Write(p.seen)
	m.Write(p.msg[macSize:n])
	return m.Sum(nil)
}

// proven reports whether the message, of n bytes, begins with the other side's proof.
func (p *party) proven(label string, n int) bool {
	return hmac.Equal(p.mac(label, n), p.msg[:macSize])
}
