package rma

import (
	"bytes"
	"encoding/binary"
	"math"
	"math/rand/v2"
	"testing"
)

// A table is read as it was written, run by run.
func TestRunsRoundTrip(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		const length = 500
		var table Runs
		var want []int64 // the bytes, in their order
		for range rng.IntN(6) {
			r := Run{At: rng.Int64N(length / 2), Size: 1 + rng.Int64N(9), Count: 1 + rng.Int64N(9),
				Stride: rng.Int64N(20)}
			if back := r.Stride * (r.Count - 1); rng.IntN(2) == 0 && back <= r.At {
				r.Stride = -r.Stride
			}
			if table = table.Append(r); r.Count == 1 {
				r.Stride = 0
			}
			for i := range r.Count {
				for b := range r.Size {
					want = append(want, r.At+i*r.Stride+b)
				}
			}
		}
		table = append(table, make([]byte, rng.IntN(8))...)
		n, ok := table.Check(length, 1000, 1)
		if !ok || n != int64(len(want)) {
			t.Fatalf("%x has %d bytes, %v; want %d", []byte(table), n, ok, len(want))
		}
		i := int64(0)
		table.Each(func(at, n, before int64) bool {
			if before != i {
				t.Fatalf("%d bytes come before the run at %d, want %d", before, at, i)
			}
			for b := range n {
				if want[i] != at+b {
					t.Fatalf("byte %d is at %d, want %d", i, at+b, want[i])
				}
				i++
			}
			return true
		})
		if i != n {
			t.Fatalf("%d bytes of %d", i, n)
		}
		if short, ok := table.Check(length, n-1, 1); ok && n > 0 {
			t.Fatalf("%d bytes are at most %d", short, n-1)
		}
	}
	count := 0
	five := Runs{}.Append(Run{0, 1, 5, 1})
	if five.Each(func(int64, int64, int64) bool { count++; return count < 3 }) || count != 3 {
		t.Errorf("Each goes on for %d runs after an end", count)
	}
}

// A table of another process that cannot be is refused.
func TestRunsRefused(t *testing.T) {
	const length, most, elem = 64, 1000, 4
	for _, r := range []Run{
		{At: 61, Size: 4, Count: 1}, {At: 0, Size: 68, Count: 1}, {At: 64, Size: 4, Count: 1},
		{At: math.MaxInt64, Size: 4, Count: 1}, {At: math.MaxInt64 - 3, Size: math.MaxInt64, Count: 1},
		{At: 0, Size: 4, Count: 17, Stride: 4}, {At: 56, Size: 4, Count: 3, Stride: 4},
		{At: 0, Size: 4, Count: 2, Stride: math.MaxInt64}, {At: 60, Size: 4, Count: 2, Stride: math.MinInt64},
		{At: 60, Size: 4, Count: 3, Stride: math.MinInt64 / 2}, {At: 60, Size: 4, Count: 17, Stride: -4},
		{At: 4, Size: 4, Count: 2, Stride: -8}, {At: 0, Size: 4, Count: math.MaxInt64, Stride: 0},
		{At: 0, Size: 4, Count: 251, Stride: 0}, {At: 0, Size: math.MaxInt64, Count: math.MaxInt64, Stride: 0},
		{At: 2, Size: 4, Count: 1}, {At: 0, Size: 6, Count: 1}, {At: 0, Size: 4, Count: 2, Stride: 2},
	} {
		table := Runs{}.Append(Run{At: 0, Size: 4, Count: 2, Stride: 8}).Append(r)
		if n, ok := table.Check(length, most, elem); ok {
			t.Errorf("%+v is taken for %d bytes", r, n)
		}
	}
	good := Runs{}.Append(Run{At: 60, Size: 4, Count: 16, Stride: -4})
	for n := 1; n < len(good); n++ {
		if _, ok := good[:n].Check(length, most, elem); ok {
			t.Errorf("%x is taken for a table", []byte(good[:n]))
		}
	}
	if n, ok := good.Check(length, most, elem); !ok || n != 64 {
		t.Errorf("%d bytes, %v", n, ok)
	}
	if _, ok := append(good, 0, 0, 1).Check(length, most, elem); ok {
		t.Error("what follows a table is taken for a part of it")
	}
}

// No table has a run outside the memory, or more bytes than it says.
func FuzzRuns(f *testing.F) {
	f.Add([]byte(Runs{}.Append(Run{3, 4, 5, -6}).Append(Run{1, 2, 1, 0})), uint16(100), uint8(1))
	f.Add(bytes.Repeat([]byte{0xff}, 40), uint16(8), uint8(8))
	f.Add(binary.AppendUvarint([]byte{1}, math.MaxUint64), uint16(8), uint8(1))
	f.Fuzz(func(t *testing.T, b []byte, length uint16, elem uint8) {
		n, ok := Runs(b).Check(int64(length), 1<<14, int(elem))
		if !ok {
			return
		}
		total := int64(0)
		Runs(b).Each(func(at, n, before int64) bool {
			if at < 0 || n <= 0 || at+n > int64(length) || before != total {
				t.Fatalf("%x has %d bytes at %d, with %d before, of %d", b, n, at, before, length)
			}
			if elem > 1 && (at%int64(elem) != 0 || n%int64(elem) != 0) {
				t.Fatalf("%x has %d bytes at %d of elements of %d", b, n, at, elem)
			}
			total += n
			return true
		})
		if total != n || n > 1<<14 {
			t.Fatalf("%x has %d bytes, and says %d", b, total, n)
		}
	})
}
