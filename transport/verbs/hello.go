package verbs

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// controlProtocol is what both ends of a control connection prove that they speak. A connection of the transport tcp
// cannot be taken for one.
const controlProtocol = "gorun verbs 1"

// The messages of two ranks over the control connection, which has proved that both belong to the job. Each is the
// payload of a packet whose Tag is the kind.
const (
	// tagHello is "my queue pair for you". It is sent once by each side, by the one that connects first unasked.
	tagHello = iota + 1
	// tagReady is "what I send to you arrives", of the higher rank, and then "so does what I send to you, and I have
	// opened the session", of the lower one: see prove.go.
	tagReady
	// tagBroken is "my queue pair for you has failed, or could not be made"; the payload says why.
	tagBroken
	// tagKnown is "my queue pairs know yours and can receive". What is sent before would be lost until it is sent again.
	tagKnown
)

// hello is where a queue pair is. All integers are little-endian on the wire.
type hello struct {
	layer  uint8 // enum of the link layer: both must be of one kind
	mtu    uint8 // enum ibv_mtu of the port
	reads  uint8 // how many READs it serves at once
	lid    uint16
	gid    [16]byte
	qpn    uint32 // 24 bits
	psn    uint32 // of the first packet; 24 bits
	slot   uint32 // bytes of its receive buffers
	serves uint8  // servesTags, needsGRH
	// With servesTags: the queue pair that the sender of this says hello to is connected with serveQPN, and its own
	// device answers from there.
	serveQPN uint32
	most     uint32 // bytes of one message that its device moves
	pkey     uint16 // of its partition

	probe   uint32 // the queue pair by which paths are proved; 24 bits
	sink    uint64 // where the peer's WRITE may go
	sinkKey uint32
}

const (
	helloVersion = 1
	helloSize    = 1 + 1 + 1 + 1 + 2 + 16 + 4 + 4 + 4 + 1 + 4 + 4 + 2 + 4 + 8 + 4

	// servesTags: its receive queue matches tags, so all that it gets begins with a tag-matching header.
	servesTags = 1
	// needsGRH: packets for its port carry its GID.
	needsGRH = 2
)

// encode returns the bytes of h.
func (h *hello) encode() []byte {
	b := []byte{helloVersion, h.layer, h.mtu, h.reads}
	le := binary.LittleEndian
	b = le.AppendUint16(b, h.lid)
	b = append(b, h.gid[:]...)
	b = le.AppendUint32(b, h.qpn)
	b = le.AppendUint32(b, h.psn)
	b = le.AppendUint32(b, h.slot)
	b = append(b, h.serves)
	b = le.AppendUint32(b, h.serveQPN)
	b = le.AppendUint32(b, h.most)
	b = le.AppendUint16(b, h.pkey)
	b = le.AppendUint32(b, h.probe)
	b = le.AppendUint64(b, h.sink)
	return le.AppendUint32(b, h.sinkKey)
}

var errHello = errors.New("what the peer says of its queue pair cannot be right")

// decode reads what encode wrote; a longer one is of a later version that can do more.
func (h *hello) decode(b []byte) error {
	if len(b) < helloSize {
		return fmt.Errorf("%w: %d bytes, at least %d are needed", errHello, len(b), helloSize)
	}
	if b[0] != helloVersion {
		return fmt.Errorf("%w: version %d, this is version %d", errHello, b[0], helloVersion)
	}
	le := binary.LittleEndian
	*h = hello{layer: b[1], mtu: b[2], reads: b[3], lid: le.Uint16(b[4:]), qpn: le.Uint32(b[22:]), psn: le.Uint32(b[26:]),
		slot: le.Uint32(b[30:]), serves: b[34], serveQPN: le.Uint32(b[35:]), most: le.Uint32(b[39:]),
		pkey: le.Uint16(b[43:]), probe: le.Uint32(b[45:]), sink: le.Uint64(b[49:]), sinkKey: le.Uint32(b[57:])}
	copy(h.gid[:], b[6:])
	switch {
	case (h.qpn|h.psn|h.serveQPN|h.probe)>>24 != 0:
		return fmt.Errorf("%w: queue pairs %#x, %#x and %#x, packet %#x: they have 24 bits", errHello, h.qpn, h.serveQPN,
			h.probe, h.psn)
	case h.mtu < 1 || h.mtu > 5:
		return fmt.Errorf("%w: MTU %d, it is 1 (256 bytes) to 5 (4096 bytes)", errHello, h.mtu)
	case h.slot < minSlot || h.slot > maxSlot:
		return fmt.Errorf("%w: receive buffers of %d bytes, they have %d to %d", errHello, h.slot, minSlot, maxSlot)
	}
	return nil
}

// Bounds of a receive buffer.
const (
	minSlot = 1 << 10
	maxSlot = 1 << 20
)

// address is what a rank publishes: the link layer of its port, and where its control connection listens.
func encodeAddress(layer uint8, control []byte) []byte {
	return append([]byte{helloVersion, layer}, control...)
}

func decodeAddress(b []byte) (layer uint8, control []byte, err error) {
	if len(b) < 2 || b[0] != helloVersion {
		return 0, nil, fmt.Errorf("%d bytes that are no address of version %d", len(b), helloVersion)
	}
	return b[1], b[2:], nil
}
