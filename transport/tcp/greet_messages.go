package tcp

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
)

// The messages of the handshake. Numbers are little-endian; a zero that is not zero is an error.
//
//	hello                                                    challenge
//	 0 ┌──────────────────────────────┐                       0 ┌──────────────────────────────┐
//	   │ "gorunTCP"                   │                         │ "gorunTCP"                   │
//	 8 ├──────────────┬───────────────┤                       8 ├──────────────┬───────────────┤
//	   │ version  u16 │ flags  u16    │ 1: TLS is wanted        │ version  u16 │ refused  u16  │ 0, or why
//	12 ├──────────────┴───────────────┤                      12 ├──────────────┴───────────────┤
//	   │ from rank  u32               │                         │ zero  u32                    │
//	16 ├──────────────────────────────┤                      16 ├──────────────────────────────┤
//	   │ to rank  u32                 │                         │ nonce, 32 bytes              │ 0 if refused
//	20 ├──────────────────────────────┤                      48 └──────────────────────────────┘
//	   │ zero  u32                    │
//	24 ├──────────────────────────────┤                      verdict
//	   │ frames sent  u64             │                       0 ┌──────────────────────────────┐
//	32 ├──────────────────────────────┤                         │ HMAC of the acceptor         │
//	   │ frames received  u64         │                      32 ├──────────────┬───────────────┤
//	40 ├──────────────────────────────┤                         │ code  u16    │ card's length │ u16, ≤ cardMax
//	   │ hash of the job's name, 16   │                      36 ├──────────────┴───────────────┤
//	56 ├──────────────────────────────┤                         │ zero  u32                    │
//	   │ nonce, 32 bytes              │                      40 ├──────────────────────────────┤
//	88 └──────────────────────────────┘                         │ frames sent  u64             │
//	                                                         48 ├──────────────────────────────┤
//	proof                                                       │ frames received  u64         │
//	 0 ┌──────────────────────────────┐                      56 ├──────────────────────────────┤
//	   │ HMAC of the dialler          │                         │ card                         │
//	32 ├──────────────┬───────────────┘                         └──────────────────────────────┘
//	   │ card's length│ u16, ≤ cardMax
//	34 ├──────────────┴───────────────┐   An HMAC is over a label, all messages before this one, and what of this one
//	   │ card                         │   comes after the HMAC.
//	   └──────────────────────────────┘
const (
	magic    = "gorunTCP"
	protocol = 1

	greetingSize  = 12 // of a hello: what is the same in all versions
	helloSize     = 88
	challengeSize = 48
	macSize       = 32
	proofSize     = macSize + 2
	verdictSize   = 56
	messageMax    = verdictSize + cardMax
	seenMax       = helloSize + challengeSize + proofSize + cardMax + verdictSize + cardMax

	labelDialer   = "gorun tcp dialer"
	labelAcceptor = "gorun tcp acceptor"
)

// hello is what the dialler says before it has proved anything.
type hello struct {
	version        uint16
	tls            bool // wanted
	from, to       int  // ranks, below 2³¹ each
	sent, received uint64
	job            [16]byte
	nonce          [32]byte
}

// jobHash is what tells jobs apart before the proof; the name itself is nobody's business.
func jobHash(name string) (hash [16]byte) {
	sum := sha256.Sum256([]byte("gorun tcp job " + name))
	copy(hash[:], sum[:])
	return hash
}

func (h *hello) encode(b *[messageMax]byte) {
	clear(b[:helloSize])
	copy(b[:], magic)
	binary.LittleEndian.PutUint16(b[8:], h.version)
	if h.tls {
		b[10] = 1
	}
	binary.LittleEndian.PutUint32(b[12:], uint32(h.from))
	binary.LittleEndian.PutUint32(b[16:], uint32(h.to))
	binary.LittleEndian.PutUint64(b[24:], h.sent)
	binary.LittleEndian.PutUint64(b[32:], h.received)
	copy(b[40:], h.job[:])
	copy(b[56:], h.nonce[:])
}

// decodeGreeting: the first greetingSize bytes of a hello of any version.
func decodeGreeting(b []byte) (version uint16, ok bool) {
	return binary.LittleEndian.Uint16(b[8:]), string(b[:len(magic)]) == magic
}

// decodeHello takes helloSize bytes of this version.
func decodeHello(b []byte) (h hello, ok bool) {
	flags := binary.LittleEndian.Uint16(b[10:])
	from, to := binary.LittleEndian.Uint32(b[12:]), binary.LittleEndian.Uint32(b[16:])
	h = hello{
		version: binary.LittleEndian.Uint16(b[8:]), tls: flags == 1,
		from: int(int32(from)), to: int(int32(to)),
		sent: binary.LittleEndian.Uint64(b[24:]), received: binary.LittleEndian.Uint64(b[32:]),
		job: [16]byte(b[40:]), nonce: [32]byte(b[56:]),
	}
	ok = flags <= 1 && h.from >= 0 && h.to >= 0 && binary.LittleEndian.Uint32(b[20:]) == 0
	return h, ok
}

// challenge is the acceptor's answer, before it has proved anything.
type challenge struct {
	version uint16
	why     reason // isProper: go on; else why not
	nonce   [32]byte
}

func (c *challenge) encode(b *[messageMax]byte) {
	clear(b[:challengeSize])
	copy(b[:], magic)
	binary.LittleEndian.PutUint16(b[8:], c.version)
	binary.LittleEndian.PutUint16(b[10:], uint16(c.why))
	copy(b[16:], c.nonce[:])
}

// decodeChallenge takes challengeSize bytes. Of another version only the version is looked at.
func decodeChallenge(b []byte) (c challenge, ok bool) {
	why := binary.LittleEndian.Uint16(b[10:])
	c = challenge{version: binary.LittleEndian.Uint16(b[8:]), why: reason(why), nonce: [32]byte(b[16:])}
	if string(b[:len(magic)]) != magic {
		return c, false
	}
	return c, c.version != protocol || why < uint16(reasons) && binary.LittleEndian.Uint32(b[12:]) == 0
}

// refusal is the error that a challenge says, or nil. Nobody has proved it: it is for people to read.
func (c *challenge) refusal(h *hello) error {
	switch {
	case c.version != protocol:
		return &greetError{why: isOtherVers, text: fmt.Sprintf("speaks version %d of the protocol, and this rank version %d: all ranks must be built with the same gorun", c.version, protocol)}
	case c.why == isProper:
		return nil
	case c.why == isOtherJob:
		return &greetError{why: c.why, text: "is a rank of another job"}
	case c.why == isOtherRank:
		return &greetError{why: c.why, text: fmt.Sprintf("is not rank %d of this job, or rank %d is none of its ranks", h.to, h.from)}
	case c.why == isOtherTLS && h.tls:
		return &greetError{why: c.why, text: "does not want TLS, and this rank does: GORUN_TCP_TLS must be the same for all ranks"}
	case c.why == isOtherTLS:
		return &greetError{why: c.why, text: "wants TLS, and this rank does not: GORUN_TCP_TLS must be the same for all ranks"}
	}
	return &greetError{why: isStranger, text: fmt.Sprintf("refused the connection (reason %d)", c.why)}
}

// encodeProof makes the dialler's proof and returns its length.
func (p *party) encodeProof(card []byte) int {
	binary.LittleEndian.PutUint16(p.msg[macSize:], uint16(len(card)))
	n := proofSize + copy(p.msg[proofSize:], card)
	copy(p.msg[:], p.mac(labelDialer, n))
	return n
}

// decodeProof takes proofSize bytes and returns the card's length.
func decodeProof(b []byte) (cardLen int, ok bool) {
	cardLen = int(binary.LittleEndian.Uint16(b[macSize:]))
	return cardLen, cardLen <= cardMax
}

// verdict is what the acceptor says to who has proved itself.
type verdict struct {
	code           code
	cardLen        int
	sent, received uint64
}

// encodeVerdict makes the whole message and returns its length.
func (p *party) encodeVerdict(v *verdict, card []byte) int {
	b := p.msg[:]
	clear(b[:verdictSize])
	binary.LittleEndian.PutUint16(b[32:], uint16(v.code))
	binary.LittleEndian.PutUint16(b[34:], uint16(len(card)))
	binary.LittleEndian.PutUint64(b[40:], v.sent)
	binary.LittleEndian.PutUint64(b[48:], v.received)
	n := verdictSize + copy(b[verdictSize:], card)
	copy(b, p.mac(labelAcceptor, n))
	return n
}

// decodeVerdict takes verdictSize bytes. It is not proved yet: only the card's length may be used before that.
func decodeVerdict(b []byte) (v verdict, ok bool) {
	number := binary.LittleEndian.Uint16(b[32:])
	v = verdict{
		code: code(number), cardLen: int(binary.LittleEndian.Uint16(b[34:])),
		sent: binary.LittleEndian.Uint64(b[40:]), received: binary.LittleEndian.Uint64(b[48:]),
	}
	ok = number >= uint16(accepted) && number <= uint16(leaving) && v.cardLen <= cardMax && binary.LittleEndian.Uint32(b[36:]) == 0
	return v, ok
}
