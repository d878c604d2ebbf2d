package verbs

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
)

func goodHello() hello {
	h := hello{layer: 2, mtu: 5, reads: 16, lid: 0xbfff, qpn: 0xffffff, psn: 0xfffffe, slot: 8256, serves: 3, pkey: 0x8001,
		probe: 0xfffffd, sink: 1<<63 | 7, sinkKey: 0xfffffffc}
	for i := range h.gid {
		h.gid[i] = byte(0x10 + i)
	}
	return h
}

// What is said comes back, at the ends of each range too; and each field has its place: the bytes are those that
// other ranks of the job, with a program of another day, say.
func TestHello(t *testing.T) {
	for _, change := range []func(*hello){
		func(*hello) {},
		func(h *hello) { h.qpn, h.psn, h.lid, h.reads, h.serves = 0, 0, 0, 0, 0 },
		func(h *hello) { h.mtu, h.slot = 1, minSlot },
		func(h *hello) { h.layer, h.slot, h.gid = 1, maxSlot, [16]byte{} },
		func(h *hello) { h.pkey = 0xffff },
		func(h *hello) { h.probe, h.sink, h.sinkKey = 0, 0, 0 },
	} {
		want := goodHello()
		change(&want)
		b := want.encode()
		if len(b) != helloSize {
			t.Fatalf("%d bytes, want %d", len(b), helloSize)
		}
		for _, more := range [][]byte{nil, {1}, make([]byte, 1000)} {
			var got hello
			if err := got.decode(append(bytes.Clone(b), more...)); err != nil || !reflect.DeepEqual(got, want) {
				t.Errorf("%+v with %d bytes more is %+v, %v", want, len(more), got, err)
			}
		}
	}
	h := goodHello()
	want := []byte("\x01\x02\x05\x10\xff\xbf\x10\x11\x12\x13\x14\x15\x16\x17\x18\x19\x1a\x1b\x1c\x1d\x1e\x1f\xff\xff\xff\x00\xfe\xff\xff\x00\x40\x20\x00\x00\x03")
	if b := h.encode(); !bytes.HasPrefix(b, want) { // there may be more
		t.Errorf("% x, want % x", b, want)
	}
}

// Each refusal says what is wrong.
func TestHelloRefused(t *testing.T) {
	le := binary.LittleEndian
	for _, c := range []struct {
		says   string
		change func(b []byte) []byte
	}{
		{"0 bytes", func([]byte) []byte { return nil }},
		{fmt.Sprintf("%d bytes, at least %d", helloSize-1, helloSize), func(b []byte) []byte { return b[:helloSize-1] }},
		{"version 2, this is version 1", func(b []byte) []byte { b[0] = 2; return b }},
		{"version 0", func(b []byte) []byte { b[0] = 0; return b }},
		{"24 bits", func(b []byte) []byte { le.PutUint32(b[22:], 1<<24); return b }},
		{"24 bits", func(b []byte) []byte { le.PutUint32(b[26:], 1<<31); return b }},
		{"24 bits", func(b []byte) []byte { le.PutUint32(b[45:], 1<<24); return b }},
		{"MTU 0", func(b []byte) []byte { b[2] = 0; return b }},
		{"MTU 6", func(b []byte) []byte { b[2] = 6; return b }},
		{"buffers of 1023 bytes", func(b []byte) []byte { le.PutUint32(b[30:], minSlot-1); return b }},
		{"buffers of 1048577 bytes", func(b []byte) []byte { le.PutUint32(b[30:], maxSlot+1); return b }},
	} {
		h := goodHello()
		var got hello
		if err := got.decode(c.change(h.encode())); !errors.Is(err, errHello) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("error %v, want one that says %q", err, c.says)
		}
	}
}

func TestAddress(t *testing.T) {
	for _, control := range [][]byte{nil, {7}, []byte("127.0.0.1:4711")} {
		layer, got, err := decodeAddress(encodeAddress(2, control))
		if err != nil || layer != 2 || !bytes.Equal(got, control) {
			t.Errorf("%q: layer %d, %q, %v", control, layer, got, err)
		}
	}
	for _, b := range [][]byte{nil, {}, {helloVersion}, {helloVersion + 1, 2, 3}, {0, 0}} {
		if _, _, err := decodeAddress(b); err == nil || !strings.Contains(err.Error(), "no address of version 1") {
			t.Errorf("%v: %v", b, err)
		}
	}
}

// FuzzHello checks that what a peer says is refused, or in bounds and the same when it is said again.
func FuzzHello(f *testing.F) {
	h := goodHello()
	b := h.encode()
	f.Add(b)
	f.Add(b[:helloSize-1])
	f.Add(append(bytes.Clone(b), 1, 2, 3))
	f.Add(make([]byte, helloSize))
	f.Add(bytes.Repeat([]byte{0xff}, helloSize))
	f.Fuzz(func(t *testing.T, b []byte) {
		var h hello
		if err := h.decode(b); err != nil {
			if !errors.Is(err, errHello) {
				t.Error(err)
			}
			return
		}
		if (h.qpn|h.psn|h.probe)>>24 != 0 || h.mtu < 1 || h.mtu > 5 || h.slot < minSlot || h.slot > maxSlot {
			t.Errorf("% x is %+v", b, h)
		}
		if again := h.encode(); !bytes.Equal(again, b[:helloSize]) {
			t.Errorf("% x is % x when it is said again", b, again)
		}
	})
}
