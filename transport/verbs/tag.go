//go:build verbs && linux && cgo

package verbs

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/gorun-mpi/mpi/internal/wire"
	"github.com/gorun-mpi/mpi/transport"
)

// A message over a queue pair whose receiver matches tags begins with a tag-matching header (infiniband/tm_types.h),
// whose integers are big-endian:
//
//	 0        1         4                  8                             16
//	┌────────┬─────────┬──────────────────┬─────────────────────────────┐
//	│ opcode │  zero   │ kind, sender's   │   context, source, tag      │  EAGER: then the payload
//	│        │         │ number or flags  │   (transport.PackTag)       │
//	├────────┴─────────┴──────────────────┼──────────────┬──────────────┤
//	│              address                │ registration │    length    │  RNDV, and FIN, which is its copy
//	└─────────────────────────────────────┴──────────────┴──────────────┘  32 bytes
//
// All that a receive could match is EAGER or RNDV, or it could be overtaken: the synchronous and the software's own RTS
// too, told apart by the kind. A message that is not matched, or whose context does not pack, is NO_TAG: eight zero
// bytes, and then the usual frame. An ID does not fit: the peer knows the message by a number of 28 bits, which the
// sender's device turns into the ID again in what comes back (idTable). In RNDV the two bits above the number are the
// flags Blocking and NoCredit of the RTS that it stands for.
const (
	tagHeader   = 16
	tagRndvSize = 32
	noTagSize   = 8

	tmNoTag = 0
	tmRndv  = 1
	tmFin   = 2
	tmEager = 3

	kindPlain = 0 // an eager message
	kindSync  = 1 // a synchronous one
	kindRTS   = 2 // the header of an RTS, whose rendezvous is software's
	kindRndv  = 3

	kindBit    = 30
	numberBits = 28
	numberMask = 1<<numberBits - 1

	appBlocking = 1 << numberBits
	appNoCredit = 2 << numberBits
)

// frame puts h and payload into b as the peer's queue wants them, and returns the length.
func (s *session) frame(b []byte, h *wire.Header, payload []byte) int {
	if !s.tagged {
		n := h.Encode(b)
		return n + copy(b[n:], payload)
	}
	d := s.d
	if s.deviceMatches {
		if n := s.taggedFrame(b, h, payload); n > 0 {
			return n
		}
		switch h.Kind {
		case wire.Cancel, wire.Blocked, wire.RTS, wire.EagerSync:
			short := *h
			short.ID = uint64(d.ids.number(h.ID))
			h = &short
		}
	}
	clear(b[:noTagSize])
	n := noTagSize + h.Encode(b[noTagSize:])
	return n + copy(b[n:], payload)
}

// frameSize is what frame will need.
func (s *session) frameSize(h *wire.Header, payload []byte) int {
	if !s.tagged {
		return h.Size() + len(payload)
	}
	return noTagSize + h.Size() + len(payload) // or less
}

// taggedFrame is frame for what a receive could match; 0: it is none of that.
func (s *session) taggedFrame(b []byte, h *wire.Header, payload []byte) int {
	kind := uint32(kindPlain)
	switch h.Kind {
	case wire.Eager:
	case wire.EagerSync:
		kind = kindSync
	case wire.RTS:
		kind = kindRTS
	default:
		return 0
	}
	tag, ok := transport.PackTag(h.Ctx, int32(s.d.opt.Rank), h.Tag)
	if !ok {
		return 0
	}
	number := uint32(h.Flags) // of a plain one, which needs none
	if kind != kindPlain {
		number = s.d.ids.number(h.ID)
	}
	op := byte(tmEager)
	if kind == kindRTS && s.readsItself(h) {
		op, kind = tmRndv, kindRndv
		if h.Flags&wire.Blocking != 0 {
			number |= appBlocking
		}
		if h.Flags&wire.NoCredit != 0 {
			number |= appNoCredit
		}
	}
	be := binary.BigEndian
	clear(b[:4])
	b[0] = op
	be.PutUint32(b[4:], kind<<kindBit|number)
	be.PutUint64(b[8:], tag)
	switch kind {
	case kindRndv:
		be.PutUint64(b[16:], h.Addr)
		be.PutUint32(b[24:], uint32(h.Key))
		be.PutUint32(b[28:], uint32(h.Len))
		return tagRndvSize
	case kindRTS:
		short := *h
		short.ID = uint64(number)
		return tagHeader + short.Encode(b[tagHeader:])
	}
	return tagHeader + copy(b[tagHeader:], payload)
}

// readsItself reports whether the receiver's device can fetch the message that h announces.
func (s *session) readsItself(h *wire.Header) bool {
	most := min(uint64(s.d.at.maxLength), uint64(s.theirMost))
	return h.Flags&wire.Readable != 0 && h.Len >= tagRndvSize && h.Len <= most && s.d.at.tags.header >= tagRndvSize
}

// idTable has the IDs of messages that have been announced and not been answered for good, each by a short number. 0
// stands for 0.
type idTable struct {
	ids     []uint64 // by number
	free    []uint32
	numbers map[uint64]uint32 // by ID
}

// number is that of a message, which it has from now until drop.
func (t *idTable) number(id uint64) uint32 {
	if id == 0 {
		return 0
	}
	if i, known := t.numbers[id]; known {
		return i
	}
	if t.numbers == nil {
		t.numbers, t.ids = map[uint64]uint32{}, []uint64{0}
	}
	var i uint32
	if k := len(t.free); k > 0 {
		i = t.free[k-1]
		t.free = t.free[:k-1]
		t.ids[i] = id
	} else {
		i = uint32(len(t.ids))
		t.ids = append(t.ids, id)
	}
	t.numbers[id] = i
	return i
}

// id is the ID that a peer's number stands for, or the number itself if it stands for none, which is no message's ID
// then; drop: nothing more will be heard of it.
func (t *idTable) id(number uint64, drop bool) uint64 {
	if number >= uint64(len(t.ids)) || t.ids[number] == 0 {
		return number
	}
	id := t.ids[number]
	if drop {
		t.ids[number] = 0
		delete(t.numbers, id)
		t.free = append(t.free, uint32(number))
	}
	return id
}

var errFrame = errors.New("it sent a frame that cannot be right")

// unframe reads what frame wrote, or the peer's device as its FIN. The event is Unmatched for what the device counts as
// a message that no entry of the list was for, else Arrived.
func (s *session) unframe(b []byte, pkt *transport.Packet) (transport.Event, error) {
	if !s.d.tags.on() {
		return transport.Arrived, plainFrame(b, pkt)
	}
	if len(b) < noTagSize {
		return transport.Arrived, fmt.Errorf("%w: %d bytes", errFrame, len(b))
	}
	switch b[0] {
	case tmNoTag:
		if err := plainFrame(b[noTagSize:], pkt); err != nil {
			return transport.Arrived, err
		}
		s.restoreID(&pkt.Header)
		return transport.Arrived, nil
	case tmFin:
		if len(b) < tagHeader || !s.deviceMatches {
			return transport.Arrived, fmt.Errorf("%w: a FIN of %d bytes", errFrame, len(b))
		}
		pkt.Header = wire.Header{Kind: wire.FIN, ID: s.d.ids.id(uint64(binary.BigEndian.Uint32(b[4:])&numberMask), true)}
		pkt.Payload = nil
		return transport.Arrived, nil
	case tmEager, tmRndv:
		return transport.Unmatched, s.untag(b, pkt)
	}
	return transport.Arrived, fmt.Errorf("%w: tag-matching opcode %d", errFrame, b[0])
}

func plainFrame(b []byte, pkt *transport.Packet) error {
	n, err := pkt.Header.Decode(b)
	if err == nil && n == 0 {
		err = fmt.Errorf("%w: %d bytes, which is less than a header", errFrame, len(b))
	}
	if err != nil {
		return err
	}
	pkt.Payload = b[n:len(b):len(b)]
	return nil
}

// restoreID gives an answer the whole ID of the message that it is about.
func (s *session) restoreID(h *wire.Header) {
	if !s.deviceMatches {
		return
	}
	switch h.Kind {
	case wire.FIN, wire.Matched:
		h.ID = s.d.ids.id(h.ID, true)
	case wire.CancelReply:
		h.ID = s.d.ids.id(h.ID, h.Len != 0)
	case wire.CTS, wire.PutReq, wire.Ask, wire.HandleReq:
		h.ID = s.d.ids.id(h.ID, false)
	}
}

func (s *session) untag(b []byte, pkt *transport.Packet) error {
	if len(b) < tagHeader || b[0] == tmRndv && len(b) < tagRndvSize {
		return fmt.Errorf("%w: %d bytes with a tag", errFrame, len(b))
	}
	be := binary.BigEndian
	app, packed := be.Uint32(b[4:]), be.Uint64(b[8:])
	ctx, source, tag := transport.UnpackTag(packed)
	if int(source) != s.peer {
		return fmt.Errorf("%w: it calls itself rank %d", errFrame, source)
	}
	pkt.Payload = nil
	if b[0] == tmRndv {
		pkt.Header = rendezvousHeader(b)
		return nil
	}
	h := wire.Header{Kind: wire.Eager, Ctx: ctx, Tag: tag}
	switch app >> kindBit {
	case kindPlain:
		h.Flags = uint8(app)
		pkt.Payload = b[tagHeader:len(b):len(b)]
	case kindSync:
		h.Kind, h.Flags, h.ID = wire.EagerSync, wire.Urgent, uint64(app&numberMask)
		pkt.Payload = b[tagHeader:len(b):len(b)]
	case kindRTS:
		if err := softwareRTS(b[tagHeader:], packed, &h); err != nil {
			return err
		}
	default:
		return fmt.Errorf("%w: kind %d", errFrame, app>>kindBit)
	}
	pkt.Header = h
	return nil
}

// rendezvousHeader is the RTS that a message of opcode RNDV stands for. b has at least tagRndvSize bytes.
func rendezvousHeader(b []byte) wire.Header {
	be := binary.BigEndian
	ctx, _, tag := transport.UnpackTag(be.Uint64(b[8:]))
	app, flags := be.Uint32(b[4:]), wire.Urgent|wire.Readable
	if app&appBlocking != 0 {
		flags |= wire.Blocking
	}
	if app&appNoCredit != 0 {
		flags |= wire.NoCredit
	}
	return wire.Header{Kind: wire.RTS, Flags: flags, Ctx: ctx, Tag: tag, ID: uint64(app & numberMask),
		Len: uint64(be.Uint32(b[28:])), Addr: be.Uint64(b[16:]), Key: uint64(be.Uint32(b[24:]))}
}

// readOffer reads the RTS that the device has left in a tagged buffer, and that has begun with this tag and application
// context. Anything else in the buffer is no RTS: mlx5 gives a message that it has given up the same status.
func readOffer(b []byte, packed uint64, app uint32, h *wire.Header) error {
	be := binary.BigEndian
	if len(b) < tagRndvSize || b[0] != tmRndv || be.Uint32(b[4:]) != app || be.Uint64(b[8:]) != packed {
		return errors.New("the device has left a message to software, and its RTS is not in the buffer")
	}
	*h = rendezvousHeader(b)
	return nil
}

// softwareRTS reads the RTS that was sent as the payload of a message with that tag.
func softwareRTS(b []byte, packed uint64, h *wire.Header) error {
	n, err := h.Decode(b)
	if err != nil {
		return err
	}
	ctx, _, tag := transport.UnpackTag(packed)
	if n == 0 || h.Kind != wire.RTS || h.Ctx != ctx || h.Tag != tag {
		return fmt.Errorf("%w: an RTS whose tag is another", errFrame)
	}
	return nil
}
