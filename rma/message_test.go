package rma

import (
	"bytes"
	"math"
	"math/big"
	"math/rand/v2"
	"strings"
	"testing"
)

// The bytes of a request are fixed: ranks of two versions of the module would have to agree on them.
func TestRequestBytes(t *testing.T) {
	r := Request{Kind: Fetch, Op: 9, Slot: 0x01020304, At: 0x1112131415161718, N: 0x2122232425262728, Runs: 0x3132}
	want := []byte{6, 9, 0x32, 0x31, 4, 3, 2, 1, 0x18, 0x17, 0x16, 0x15, 0x14, 0x13, 0x12, 0x11,
		0x28, 0x27, 0x26, 0x25, 0x24, 0x23, 0x22, 0x21}
	if got := r.Append([]byte("before")); !bytes.Equal(got, append([]byte("before"), want...)) {
		t.Errorf("the request is %x, want %x", got, want)
	}
	for then, first := range map[Kind]byte{0: 5, Flush: 0x45, Unlock: 0x85} {
		if got := (&Request{Kind: Update, Then: then}).Append(nil)[0]; got != first {
			t.Errorf("an update, then %v, begins with %#x, want %#x", then, got, first)
		}
	}
	if len(want) != RequestSize || AnswerSize != 8 {
		t.Errorf("RequestSize is %d and AnswerSize %d", RequestSize, AnswerSize)
	}
	for i, k := range []Kind{0, Info, Put, PutAlone, Get, Update, Fetch, Swap, Lock, Unlock, Flush, Abandon, kindEnd} {
		if int(k) != i {
			t.Errorf("%v is %d, want %d", k, k, i)
		}
	}
	for i, a := range []Result{Done, Outside, Senseless, PeerFailed, Returned, HalfDone, DeviceFailed, Freed, resultEnd} {
		if int(a) != i {
			t.Errorf("result %d is %d", i, a)
		}
	}
	for _, c := range []struct {
		answer Answer
		want   []byte
	}{
		{Answer{Result: PeerFailed, Rank: 0x01020304}, []byte{3, 0, 0, 0, 4, 3, 2, 1}},
		{Answer{Result: DeviceFailed}, []byte{6, 0, 0, 0, 0, 0, 0, 0}},
		{Answer{Result: Outside, Kind: Get, At: 0x1112131415161718, N: 5}, []byte{1, 4, 0, 0, 0, 0, 0, 0, 0x18, 0x17,
			0x16, 0x15, 0x14, 0x13, 0x12, 0x11, 5, 0, 0, 0, 0, 0, 0, 0}},
	} {
		if got := c.answer.Append([]byte("before")); !bytes.Equal(got, append([]byte("before"), c.want...)) {
			t.Errorf("the answer is %x, want %x", got, c.want)
		}
	}
}

// Every kind is read as it was written, with its elements.
func TestRequestRoundTrip(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for kind := Info; kind < kindEnd; kind++ {
		for i := range 50 {
			want := Request{kind, uint8(rng.Uint32()), rng.Int32(), rng.Int64(), rng.Int64(), 0, 0}
			if i == 0 {
				want = Request{Kind: kind}
			} else if i == 1 {
				want = Request{kind, math.MaxUint8, math.MaxInt32, math.MaxInt64, math.MaxInt64, 0, 0}
			}
			if kind == Put || kind == Update {
				want.Then = []Kind{0, Flush, Unlock}[rng.IntN(3)]
			}
			elements := make([]byte, rng.IntN(40))
			for j := range elements {
				elements[j] = byte(rng.Uint32())
			}
			if kind == Put || kind == Get || kind == Update || kind == Fetch {
				want.Runs = uint16(rng.IntN(len(elements) + 1))
			}
			got := Request{1, 2, 3, 4, 5, 6, 7} // nothing of an earlier request remains
			rest, err := got.Decode(append(want.Append(nil), elements...))
			if err != nil || got != want || !bytes.Equal(rest, elements) {
				t.Fatalf("%+v with %x is read as %+v with %x, %v", want, elements, got, rest, err)
			}
		}
		if name := kind.String(); name == "" || strings.Contains(name, "kind") {
			t.Errorf("kind %d is named %q", kind, name)
		}
	}
	if name := kindEnd.String(); name != "kind(12)" {
		t.Errorf("a kind that is none is named %q", name)
	}
}

// A request of another process that cannot be is refused, and the error names the first field that is wrong.
func TestRequestRefused(t *testing.T) {
	good := (&Request{Kind: Put, Slot: 1, At: 2, N: 3}).Append(nil)
	for n := range RequestSize {
		if _, err := new(Request).Decode(good[:n]); err == nil || !strings.Contains(err.Error(),
			"at least 24 are needed") {
			t.Errorf("a request of %d bytes: %v", n, err)
		}
	}
	for _, c := range []struct {
		at   int
		b    byte
		text string
	}{
		{0, 0, "of kind 0"}, {0, byte(kindEnd), "of kind 12"}, {0, 255, "of kind 255"}, {0, 0xc2, "of kind 194"},
		{0, 0x46, "a fetch request is to be answered as flush is"}, {0, 0x40, "of kind 64"},
		{2, 1, "a table of 1 bytes, and 0 follow"}, {3, 255, "a table of 65280 bytes, and 0 follow"},
		{7, 0x80, "with tag -2147483647"}, {15, 0x80, "from element -9223372036854775806 on"},
		{23, 0x80, "of -9223372036854775805 elements"}, {23, 0xff, "elements"},
	} {
		b := bytes.Clone(good)
		b[c.at] = c.b
		if rest, err := new(Request).Decode(b); err == nil || rest != nil || !strings.Contains(err.Error(), c.text) {
			t.Errorf("byte %d is %#x: %v, want %q in it", c.at, c.b, err, c.text)
		}
	}
}

// A Flush or an Unlock follows some kinds only.
func TestRequestThen(t *testing.T) {
	for kind := Info; kind < kindEnd; kind++ {
		for _, then := range []Kind{Flush, Unlock} {
			_, err := new(Request).Decode((&Request{Kind: kind, Then: then}).Append(nil))
			if may := kind == Put || kind == Update; (err == nil) != may {
				t.Errorf("a %v request, then %v: %v", kind, then, err)
			}
		}
	}
}

// A table of runs is for some kinds only.
func TestRequestTable(t *testing.T) {
	for kind := Info; kind < kindEnd; kind++ {
		b := append((&Request{Kind: kind, Runs: 2}).Append(nil), 1, 2, 3)
		_, err := new(Request).Decode(b)
		if may := kind == Put || kind == Get || kind == Update || kind == Fetch; (err == nil) != may {
			t.Errorf("a %v request with a table of runs: %v", kind, err)
		}
	}
}

// A request that is read has fields that can be, and is written as the same bytes.
func FuzzDecode(f *testing.F) {
	f.Add((&Request{Kind: Put, Slot: 1, At: 2, N: 3}).Append(nil))
	f.Add((&Request{Kind: Update, Slot: 1, N: 3, Then: Unlock}).Append(nil))
	f.Add((&Request{Kind: Swap, Op: 200, Slot: math.MaxInt32, At: math.MaxInt64, N: 1}).Append(nil))
	f.Add(bytes.Repeat([]byte{0xff}, RequestSize))
	f.Fuzz(func(t *testing.T, b []byte) {
		var r Request
		elements, err := r.Decode(b)
		if err != nil {
			if elements != nil {
				t.Fatalf("%x is refused, %v, with elements", b, err)
			}
			return
		}
		if r.Kind == 0 || r.Kind >= kindEnd || r.Slot < 0 || r.At < 0 || r.N < 0 ||
			r.Then != 0 && r.Kind != Put && r.Kind != Update {
			t.Fatalf("%x is read as %+v", b, r)
		}
		if again := append(r.Append(nil), elements...); !bytes.Equal(again, b) {
			t.Fatalf("%x is written as %x", b, again)
		}
		for _, elem := range []int{0, 1, 8, 1 << 40} {
			if Within(r.At, r.N, math.MaxInt64/2, elem) != within(r.At, r.N, math.MaxInt64/2, elem) {
				t.Fatalf("%+v is within elements of %d bytes: %v", r, elem, !within(r.At, r.N, math.MaxInt64/2, elem))
			}
		}
	})
}

// An answer that is read has fields that can be, elements only if it is Done, a text only if it is DeviceFailed, and is
// written as the same bytes.
func FuzzAnswer(f *testing.F) {
	f.Add(append(new(Answer).Append(nil), 1, 2, 3))
	f.Add((&Answer{Result: Outside, Kind: Put, At: math.MaxInt64, N: 1}).Append(nil))
	f.Add((&Answer{Result: Outside}).Append(nil)[:AnswerSize])
	f.Add((&Answer{Result: HalfDone, Rank: 7}).Append(nil))
	f.Add(append((&Answer{Result: Returned}).Append(nil), 1))
	f.Add(append((&Answer{Result: DeviceFailed}).Append(nil), "a text"...))
	f.Add(bytes.Repeat([]byte{0xff}, AnswerSize))
	f.Fuzz(func(t *testing.T, b []byte) {
		var a Answer
		elements, err := a.Decode(b)
		if err != nil {
			return
		}
		if a.Result >= resultEnd || a.Kind >= kindEnd || a.Rank < 0 || a.At < 0 || a.N < 0 ||
			a.Result != Done && a.Result != DeviceFailed && len(elements) > 0 {
			t.Fatalf("%x is read as %+v with %d bytes", b, a, len(elements))
		}
		if again := append(a.Append(nil), elements...); !bytes.Equal(again, b) {
			t.Fatalf("%x is written as %x", b, again)
		}
	})
}

// A Region that is read has a length that can be, and is written as the same bytes.
func FuzzRegion(f *testing.F) {
	f.Add((&Region{Count: 5, Addr: 1 << 63, Key: 7, Reads: true}).Append(nil))
	f.Add((&Region{Count: math.MaxInt64, Reads: true, Writes: true}).Append(nil))
	f.Add((&Region{Reads: true, Writes: true, Steps: true, ByDevice: true, Notes: MostNotes}).Append(nil))
	f.Add(bytes.Repeat([]byte{0xff}, RegionSize))
	f.Fuzz(func(t *testing.T, b []byte) {
		var m Region
		if err := m.Decode(b); err != nil {
			return
		}
		if again := m.Append(nil); m.Count < 0 || !bytes.Equal(again, b) {
			t.Fatalf("%x is read as %+v and written as %x", b, m, again)
		}
	})
}

// within reports whether Within is right to say yes, with integers that do not overflow.
func within(at, n, count int64, elem int) bool {
	a, b, c := big.NewInt(at), big.NewInt(n), big.NewInt(count)
	size := new(big.Int).Mul(c, big.NewInt(int64(elem)))
	return a.Sign() >= 0 && b.Sign() >= 0 && new(big.Int).Add(a, b).Cmp(c) <= 0 &&
		size.Cmp(big.NewInt(math.MaxInt)) <= 0
}

// No sum and no product of Within overflows.
func TestWithin(t *testing.T) {
	ends := []int64{math.MinInt64, math.MinInt64 + 1, -2, -1, 0, 1, 2, 3, 1 << 31, 1<<31 - 1, math.MaxInt64 / 8,
		math.MaxInt64/8 + 1, math.MaxInt64 / 2, math.MaxInt64/2 + 1, math.MaxInt64 - 1, math.MaxInt64}
	for _, count := range ends {
		if count < 0 {
			continue // a window has no such count
		}
		for _, at := range ends {
			for _, n := range ends {
				for _, elem := range []int{0, 1, 2, 8, 1 << 20, math.MaxInt} {
					if got, want := Within(at, n, count, elem), within(at, n, count, elem); got != want {
						t.Fatalf("%d elements of %d bytes from %d on are within %d: %v, want %v", n, elem, at, count,
							got, want)
					}
				}
			}
		}
	}
}
