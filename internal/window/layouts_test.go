package window

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/gorun-mpi/mpi/internal/layout"
	"github.com/gorun-mpi/mpi/rma"
)

// adder adds bytes, each call of it one run, and finds the guard taken before some calls.
type adder struct{ calls, busy int }

func (a *adder) Update(_ uint8, dst, src, _ []byte, _ Guard) (bool, error) {
	if a.calls++; a.calls%3 == a.busy {
		return true, errBusy
	}
	for i := range dst {
		dst[i] += src[i]
	}
	return true, nil
}

func (*adder) Adds(uint8) bool { return false }

func (*adder) Swap(_, _, _ []byte, _ Guard) (bool, error) { return false, nil }

// A request that is handled again, since the guard was taken, updates each element once.
func TestRunsAgain(t *testing.T) {
	for busy := range 4 { // 3: never
		w := &Window{elem: 2, update: &adder{busy: busy}}
		s := &served{w: w, origins: map[int32]*origin{}}
		table := rma.Runs{}.Append(rma.Run{Size: 2, Count: 4, Stride: 4}).Append(rma.Run{At: 2, Size: 2, Count: 1})
		mem, elements := make([]byte, 16), bytes.Repeat([]byte{1}, 10)
		r := rma.Request{Kind: rma.Update, N: 8, Runs: uint16(len(table))}
		for range 2 {
			for looks := 0; s.handleRuns(0, &r, mem, true, slices.Concat(table, elements)); looks++ {
				if looks > 100 {
					t.Fatal("a request is handled for ever")
				}
			}
		}
		want := []byte{2, 2, 2, 2, 2, 2, 0, 0, 2, 2, 0, 0, 2, 2, 0, 0}
		if !bytes.Equal(mem, want) || len(s.origins) > 0 {
			t.Errorf("busy at %d: the elements are %v, want %v; %d ranks are wrong", busy, mem, want, len(s.origins))
		}
	}
}

// Batches have all data of a layout, once and in its order, and each fits a request.
func TestBatches(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	const origin = 3200
	for range 50 {
		unit := []int{1, 2, 16}[rng.IntN(3)]
		elem := layout.Basic(1, int64(unit), int64(unit))
		var lens, places []int64
		at := int64(rng.IntN(100) - 200)
		for range rng.IntN(20) {
			n := []int64{0, 1, 2, 7, 300, 2000, 9000}[rng.IntN(7)] / (1 + int64(unit)/4)
			lens, places = append(lens, n), append(places, at)
			at += n + rng.Int64N(3)
		}
		typ, err := layout.Indexed(lens, places, elem)
		if err != nil {
			t.Fatal(err)
		}
		if typ, err = layout.HVector(1+rng.Int64N(4), 1, int64(unit)*(typ.Size()+50000), typ); err != nil {
			t.Fatal(err)
		}
		w := &Window{elem: unit}
		a := &aim{Strewn: Strewn{Type: typ, Origin: origin}}
		for _, carried := range []bool{false, true} {
			var want, got []int64
			typ.Runs(func(at, size, count, stride int64) bool {
				for i := range count * size {
					want = append(want, origin+at+i/size*stride+i%size)
				}
				return true
			})
			err := w.inBatches(a, carried, unit, func(b *batch) error {
				n, ok := int64(0), len(b.table())%tableAlign == 0
				b.table().Each(func(at, size, before int64) bool {
					ok = ok && before == n && at%int64(unit) == 0 && size%int64(unit) == 0
					for i := range size {
						got = append(got, at+i)
					}
					n += size
					return true
				})
				if carried {
					n += int64(len(b.table()))
				} else {
					ok = ok && len(b.table()) <= elementsMost
				}
				if !ok || n > elementsMost || b.n == 0 || b.from+b.n != int64(len(got)) {
					t.Fatalf("%d bytes from byte %d on with a table of %d bytes", b.n, b.from, len(b.table()))
				}
				return nil
			})
			if err != nil || len(got) != len(want) {
				t.Fatalf("%d bytes, want %d: %v", len(got), len(want), err)
			}
			for i := range want {
				if got[i] != want[i] {
					t.Fatalf("byte %d is at %d, want %d", i, got[i], want[i])
				}
			}
		}
	}
}
