package tcp

import (
	"encoding/binary"
	"fmt"

	"github.com/gorun-mpi/mpi/internal/wire"
)

// A frame is a header as internal/wire encodes it, 16 or 48 bytes, with the
// payload's length in bytes 12 to 15 (which are zero there), and the payload:
//
//	 byte 0      1       2       3       4               8              12              16
//	┌───────┬───────┬───────────────┬───────────────┬───────────────┬───────────────┬─────────
//	│ Kind  │ Flags │    zero       │     Ctx       │     Tag       │  payload's    │ 32 bytes more,
//	│       │       │               │               │               │  length       │ or the payload
//	└───────┴───────┴───────────────┴───────────────┴───────────────┴───────────────┴─────────
//
// A frame of byeKind is the transport's own: the sender closes its device, nothing follows.
const byeKind = 0xff

const (
	lengthAt = 12
	// fragMax bounds the payloads that are copied.
	fragMax = 256 << 10
	// lendMax bounds those that are not: fragments of large messages. A longer frame would only let small messages wait
	// longer behind it.
	lendMax = 4 << 20
)

// putHead encodes h and the payload's length into b and returns how many bytes that took.
func putHead(b []byte, h *wire.Header, length int) int {
	n := h.Encode(b)
	binary.LittleEndian.PutUint32(b[lengthAt:], uint32(length))
	return n
}

// bye is the last frame of a device that closes.
var bye = [wire.ShortSize]byte{0: byeKind}

// head decodes the beginning of a frame. n is the header's size; 0 and nil: more bytes are needed. The peer has proved
// that it is of the job, but not that it is free of mistakes: the error says what cannot be.
func head(b []byte, h *wire.Header) (n, length int, err error) {
	if len(b) < wire.ShortSize {
		return 0, 0, nil
	}
	var copied [wire.LongSize]byte
	have := copy(copied[:], b)
	size := binary.LittleEndian.Uint32(copied[lengthAt:])
	binary.LittleEndian.PutUint32(copied[lengthAt:], 0)
	n, err = h.Decode(copied[:have])
	if err != nil {
		return 0, 0, fmt.Errorf("tcp: %w", err)
	}
	most := uint32(fragMax)
	if h.Kind == wire.Data {
		most = lendMax
	}
	if size > most {
		return 0, 0, fmt.Errorf("tcp: a %v frame of %d bytes was announced, the longest has %d",
			wire.Kind(b[0]), size, most)
	}
	return n, int(size), nil
}
