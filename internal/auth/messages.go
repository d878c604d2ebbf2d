package auth

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
)

// The messages of the handshake. Numbers are little-endian; sealed bytes are followed by their tag of 16 bytes.
//
//	opening                                            reply
//	 0 ┌──────────────────────────────┐                 0 ┌──────────────────────────────┐
//	   │ "gorunAU" and the version    │                   │ "gorunAU" and the version    │
//	 8 ├──────────────────────────────┤                 8 ├──────────────────────────────┤
//	   │ nonce, 32 bytes              │                   │ nonce, 32 bytes              │
//	40 ├──────────────────────────────┤                40 ├──────────────────────────────┤
//	   │ sealed: from rank  u32       │                   │ sealed: refusal  u8          │ 0, or a Reason
//	44 │         to rank  u32         │                57 └──────────────────────────────┘
//	48 │         flags  u8            │ 1: TLS
//	65 └──────────────────────────────┘                confirmation, answer
//	                                                    0 ┌──────────────────────────────┐
//	                                                      │ length of the rest  u16      │
//	                                                    2 ├──────────────────────────────┤
//	                                                      │ sealed: the caller's payload │ at most MaxPayload bytes
//	                                                      └──────────────────────────────┘
const (
	version = 1

	preambleSize = 8
	nonceSize    = 32
	tagSize      = 16
	claimSize    = 4 + 4 + 1
	lengthSize   = 2

	sealedAt    = preambleSize + nonceSize
	openingSize = sealedAt + claimSize + tagSize
	replySize   = sealedAt + 1 + tagSize
	messageMax  = lengthSize + MaxPayload + tagSize

	labelOpening      = "gorun auth opening"
	labelReply        = "gorun auth reply"
	labelConfirmation = "gorun auth confirmation"
	labelAnswer       = "gorun auth answer"
)

// MaxPayload is the longest payload of a confirmation or an answer.
const MaxPayload = 2048

var preamble = [preambleSize]byte{'g', 'o', 'r', 'u', 'n', 'A', 'U', version}

// versionIn takes the first preambleSize bytes of an opening or a reply of any version.
func versionIn(b []byte) (v byte, ok bool) {
	const magic = preambleSize - 1
	return b[magic], string(b[:magic]) == string(preamble[:magic])
}

// identity is what the dialler says of itself in the opening.
type identity struct {
	from, to int // ranks
	tls      bool
}

func (c identity) encode() []byte {
	b := binary.LittleEndian.AppendUint32(make([]byte, 0, claimSize), uint32(c.from))
	b = binary.LittleEndian.AppendUint32(b, uint32(c.to))
	if c.tls {
		return append(b, 1)
	}
	return append(b, 0)
}

// decodeClaim takes claimSize bytes that were sealed by a side that knows the secret.
func decodeClaim(b []byte) identity {
	return identity{int(binary.LittleEndian.Uint32(b)), int(binary.LittleEndian.Uint32(b[4:])), b[8] != 0}
}

// putFirst encodes an opening or a reply into buf, and returns its length.
func (s *Session) putFirst(label string, sealed []byte) int {
	copy(s.buf[:], preamble[:])
	rand.Read(s.buf[preambleSize:sealedAt])
	return s.seal(label, sealedAt, sealed)
}

// putPayload encodes a confirmation or an answer.
func (s *Session) putPayload(label string, payload []byte) int {
	if len(payload) > MaxPayload {
		panic("auth: a payload that is longer than MaxPayload")
	}
	binary.LittleEndian.PutUint16(s.buf[:], uint16(len(payload)+tagSize))
	return s.seal(label, lengthSize, payload)
}

// payloadEnd is where a confirmation or an answer ends whose first lengthSize bytes are b.
func payloadEnd(b []byte) (end int, ok bool) {
	n := int(binary.LittleEndian.Uint16(b))
	return lengthSize + n, n >= tagSize && n <= MaxPayload+tagSize
}

// seal encrypts plain to the place behind buf[:n], and returns where that ends.
func (s *Session) seal(label string, n int, plain []byte) int {
	s.seen.Write(s.buf[:n])
	end := len(s.aead(label).Seal(s.buf[:n], zeroNonce, plain, nil))
	s.seen.Write(s.buf[n:end])
	return end
}

// unseal returns what buf[n:end] holds, in memory of its own.
func (s *Session) unseal(label string, n, end int) ([]byte, bool) {
	s.seen.Write(s.buf[:n])
	plain, err := s.aead(label).Open(nil, zeroNonce, s.buf[n:end], nil)
	s.seen.Write(s.buf[n:end])
	return plain, err == nil
}

// zeroNonce is that of each seal, since each has a key of its own.
var zeroNonce = make([]byte, 12)

// aead is for one seal: its key is of the label and of all that has been seen, and so never used again.
func (s *Session) aead(label string) cipher.AEAD {
	m := hmac.New(sha256.New, s.h.key)
	m.Write([]byte(label))
	m.Write(s.seen.Sum(nil))
	block, err := aes.NewCipher(m.Sum(nil))
	if err != nil {
		panic(err) // 32 bytes are a key of AES
	}
	gcm, err := cipher.NewGCM(block)
	if err != nil {
		panic(err) // AES has blocks of 16 bytes
	}
	return gcm
}
