package wire

import (
	"bytes"
	"encoding/binary"
	"testing"
)

// FuzzBatch reads anything as a batch: each message lies inside it and is written back as it was, and what is no
// message is an error.
func FuzzBatch(f *testing.F) {
	b := AppendBatch(nil, 1, 2, []byte("one"))
	b = AppendBatch(b, ^uint32(0), MaxTag, nil)
	b = AppendBatch(b, 0, 0, make([]byte, 300))
	f.Add(b)
	f.Add(b[:len(b)-1])
	f.Add(b[:len(b)-301])
	f.Add(AppendBatch(nil, 0, -1, nil))
	f.Add(binary.LittleEndian.AppendUint32(make([]byte, 8), ^uint32(0)))
	f.Fuzz(func(t *testing.T, b []byte) {
		var out []byte
		for rest := b; len(rest) > 0; {
			ctx, tag, payload, left, err := NextInBatch(rest)
			if err != nil {
				if payload != nil || left != nil {
					t.Fatalf("%x: %v, and there is a payload of %d bytes, %d are left", rest, err, len(payload), len(left))
				}
				return
			}
			if tag < 0 || len(left) >= len(rest) {
				t.Fatalf("%x: tag %d, and %d bytes are left", rest, tag, len(left))
			}
			out, rest = AppendBatch(out, ctx, tag, payload), left
		}
		if !bytes.Equal(out, b) {
			t.Fatalf("%x was read, and is written as %x", b, out)
		}
	})
}

// A message that is cut off, or has a tag or a length that cannot be, is refused.
func TestNextInBatchRefuses(t *testing.T) {
	whole := AppendBatch(nil, 7, 8, []byte("payload"))
	for n := range whole {
		if _, _, _, _, err := NextInBatch(whole[:n]); err == nil {
			t.Errorf("%d of %d bytes are taken for a message", n, len(whole))
		}
	}
	for name, at := range map[string]int{"tag": 7, "length": 11} {
		b := bytes.Clone(whole)
		b[at] = 0x80
		if _, _, _, _, err := NextInBatch(b); err == nil {
			t.Errorf("a %s with the highest bit is taken", name)
		}
	}
	ctx, tag, payload, rest, err := NextInBatch(AppendBatch(whole, 1, 1, nil))
	if ctx != 7 || tag != 8 || string(payload) != "payload" || len(rest) != BatchHeader || cap(payload) != 7 || err != nil {
		t.Errorf("got %d, %d, %q, %d more bytes, %v", ctx, tag, payload, len(rest), err)
	}
}
