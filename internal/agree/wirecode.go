package agree

import (
	"encoding/binary"

	"github.com/gorun-mpi/mpi/internal/ranks"
)

// Decoder reads what another rank has sent to agree on a communicator. It is hostile until proved: what cannot be makes
// the decoder bad, and everything it returns from then on is zero.
type Decoder struct {
	B   []byte
	Bad bool
}

// Int reads a number.
func (d *Decoder) Int() int64 {
	v, n := binary.Varint(d.B)
	if n <= 0 {
		d.Bad, d.B = true, nil
		return 0
	}
	d.B = d.B[n:]
	return v
}

// Within is an int from low to high.
func (d *Decoder) Within(low, high int64) int64 {
	v := d.Int()
	if v < low || v > high {
		d.Bad, d.B = true, nil
		return low
	}
	return v
}

// Count is how many things follow, each of which takes a byte at least.
func (d *Decoder) Count() int {
	n := d.Int()
	if n < 0 || n > int64(len(d.B)) { // behind the number itself
		d.Bad, d.B = true, nil
		return 0
	}
	return int(n)
}

// Bytes reads what AppendBytes has written.
func (d *Decoder) Bytes() []byte {
	n := d.Count()
	b := d.B[:n]
	d.B = d.B[n:]
	return b
}

// Over reports whether d has read all of B and found nothing wrong.
func (d *Decoder) Over() bool { return !d.Bad && len(d.B) == 0 }

// AppendInts writes numbers.
func AppendInts(b []byte, vs ...int64) []byte {
	for _, v := range vs {
		b = binary.AppendVarint(b, v)
	}
	return b
}

// AppendBytes writes s with its length.
func AppendBytes[T []byte | string](b []byte, s T) []byte {
	return append(binary.AppendVarint(b, int64(len(s))), s...)
}

// AppendRanks writes a set of ranks.
func AppendRanks(b []byte, s *ranks.Set) []byte { return AppendRuns(b, s.Runs) }

// AppendRuns writes the runs of a set.
func AppendRuns(b []byte, runs []ranks.Run) []byte {
	b = AppendInts(b, int64(len(runs)))
	for _, r := range runs {
		b = AppendInts(b, int64(r.First), int64(r.Stride), int64(r.N))
	}
	return b
}

// Ranks reads a set whose ranks are below size, in which none is twice.
func (d *Decoder) Ranks(size int) *ranks.Set {
	var b ranks.Builder
	total := int64(0)
	for range d.Count() {
		first, stride := d.Within(0, int64(size)-1), d.Within(-int64(size), int64(size))
		n := d.Within(1, int64(size))
		last := first + stride*(n-1)
		if total += n; d.Bad || total > int64(size) || last < 0 || last >= int64(size) || stride == 0 {
			d.Bad = true
			return ranks.Of()
		}
		b.Runs = append(b.Runs, ranks.Strided(int32(first), int32(stride), int32(n)))
	}
	s := b.Done()
	i := 0
	s.All(func(w int32) bool {
		if s.Find(w) != i {
			d.Bad = true
		}
		i++
		return !d.Bad
	})
	return s
}
