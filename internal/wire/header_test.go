package wire

import (
	"bytes"
	"testing"
)

func sample(k Kind) Header {
	h := Header{Kind: k, Flags: Urgent, Ctx: 0xfeedbeef, Tag: MaxTag}
	if !k.Short() {
		h.ID, h.Len, h.Addr, h.Key = 1<<63, 1<<40, 0x7fff_ffff_ffff, ^uint64(0)
	}
	return h
}

func TestRoundTrip(t *testing.T) {
	for k := Kind(1); k.Valid(); k++ {
		h := sample(k)
		var b [LongSize]byte
		n := h.Encode(b[:])
		if n != h.Size() {
			t.Errorf("%v: Encode wrote %d bytes, Size says %d", k, n, h.Size())
		}
		var got Header
		if m, err := got.Decode(b[:n]); m != n || err != nil || got != h {
			t.Errorf("%v: decoded %+v (%d, %v), want %+v", k, got, m, err, h)
		}
		for i := range n {
			if m, err := got.Decode(b[:i]); m != 0 || err != nil {
				t.Errorf("%v: %d of %d bytes: got (%d, %v), want (0, nil)", k, i, n, m, err)
			}
		}
	}
}

// The layout is a contract between two versions of the library.
func TestLayout(t *testing.T) {
	h := Header{Kind: RTS, Flags: Readable, Ctx: 0x04030201, Tag: 0x08070605, ID: 1, Len: 2, Addr: 3, Key: 4}
	var b [LongSize]byte
	h.Encode(b[:])
	want := []byte{byte(RTS), Readable, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0, 0,
		1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0}
	if !bytes.Equal(b[:], want) {
		t.Errorf("layout changed:\n got %x\nwant %x", b, want)
	}
}

func TestDecodeRefuses(t *testing.T) {
	for name, edit := range map[string]func([]byte){
		"kind 0":       func(b []byte) { b[0] = 0 },
		"kind unknown": func(b []byte) { b[0] = byte(kindEnd) },
		"reserved":     func(b []byte) { b[2] = 1 },
		"negative tag": func(b []byte) { b[11] = 0x80 },
		"long tag":     func(b []byte) { b[12] = 1 },
	} {
		h := sample(Eager)
		var b [LongSize]byte
		h.Encode(b[:])
		edit(b[:])
		if n, err := h.Decode(b[:]); err == nil || n != 0 {
			t.Errorf("%s: Decode = %d, %v; want an error", name, n, err)
		}
	}
}

func FuzzDecode(f *testing.F) {
	for k := Kind(1); k.Valid(); k++ {
		h := sample(k)
		var b [LongSize]byte
		f.Add(b[:h.Encode(b[:])])
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var h Header
		n, err := h.Decode(b)
		if err != nil || n == 0 {
			return
		}
		var out [LongSize]byte
		if m := h.Encode(out[:]); m != n || !bytes.Equal(out[:m], b[:n]) {
			t.Fatalf("%x decoded to %+v, which encodes to %x", b[:n], h, out[:m])
		}
	})
}
