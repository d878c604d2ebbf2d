package wire

import (
	"encoding/binary"
	"fmt"
)

// BatchHeader is what a message in a batch takes besides its payload:
//
//	 byte 0              4               8              12
//	┌───────────────┬───────────────┬───────────────┬───────────
//	│     Ctx       │     Tag       │    length     │  payload
//	└───────────────┴───────────────┴───────────────┴───────────
//
// The next message follows without a gap. A message in a batch has no kind, so a batch holds no batch.
const BatchHeader = 12

// AppendBatch appends a message to the payload of a batch.
func AppendBatch(b []byte, ctx uint32, tag int32, payload []byte) []byte {
	le := binary.LittleEndian
	b = le.AppendUint32(b, ctx)
	b = le.AppendUint32(b, uint32(tag))
	b = le.AppendUint32(b, uint32(len(payload)))
	return append(b, payload...)
}

// NextInBatch returns the first message of a batch's payload and what follows it. payload is a part of b. The error
// says what cannot be; nothing else of b is to be read then.
func NextInBatch(b []byte) (ctx uint32, tag int32, payload, rest []byte, err error) {
	if len(b) < BatchHeader {
		return 0, 0, nil, nil, fmt.Errorf("wire: a batch has %d bytes where a message begins with %d", len(b), BatchHeader)
	}
	le := binary.LittleEndian
	ctx, t, n := le.Uint32(b), le.Uint32(b[4:]), le.Uint32(b[8:])
	b = b[BatchHeader:]
	switch {
	case t > MaxTag:
		return 0, 0, nil, nil, fmt.Errorf("wire: a message in a batch has tag %#x, the largest is %#x", t, uint32(MaxTag))
	case uint64(n) > uint64(len(b)):
		return 0, 0, nil, nil, fmt.Errorf("wire: a message in a batch has %d bytes, of which %d are there", n, len(b))
	}
	return ctx, int32(t), b[:n:n], b[n:], nil
}
