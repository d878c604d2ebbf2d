package mpi

import (
	"encoding/binary"

	"github.com/gorun-mpi/mpi/internal/ranks"
)

// decoder reads what another rank has sent to agree on a communicator. It is hostile until proved: what cannot be makes
// the decoder bad, and everything it returns from then on is zero.
type decoder struct {
	b   []byte
	bad bool
}

func (d *decoder) int() int64 {
	v, n := binary.Varint(d.b)
	if n <= 0 {
		d.bad, d.b = true, nil
		return 0
	}
	d.b = d.b[n:]
	return v
}

// within is an int from low to high.
func (d *decoder) within(low, high int64) int64 {
	v := d.int()
	if v < low || v > high {
		d.bad, d.b = true, nil
		return low
	}
	return v
}

// count is how many things follow, each of which takes a byte at least.
func (d *decoder) count() int {
	n := d.int()
	if n < 0 || n > int64(len(d.b)) { // behind the number itself
		d.bad, d.b = true, nil
		return 0
	}
	return int(n)
}

func (d *decoder) bytes() []byte {
	n := d.count()
	b := d.b[:n]
	d.b = d.b[n:]
	return b
}

// over: all has been read, and nothing was wrong.
func (d *decoder) over() bool { return !d.bad && len(d.b) == 0 }

func appendInts(b []byte, vs ...int64) []byte {
	for _, v := range vs {
		b = binary.AppendVarint(b, v)
	}
	return b
}

func appendBytes[T []byte | string](b []byte, s T) []byte {
	return append(binary.AppendVarint(b, int64(len(s))), s...)
}

func appendRanks(b []byte, s *ranks.Set) []byte { return appendRuns(b, s.Runs) }

func appendRuns(b []byte, runs []ranks.Run) []byte {
	b = appendInts(b, int64(len(runs)))
	for _, r := range runs {
		b = appendInts(b, int64(r.First), int64(r.Stride), int64(r.N))
	}
	return b
}

// ranks reads a set whose ranks are below size, in which none is twice.
func (d *decoder) ranks(size int) *ranks.Set {
	var b ranks.Builder
	total := int64(0)
	for range d.count() {
		first, stride := d.within(0, int64(size)-1), d.within(-int64(size), int64(size))
		n := d.within(1, int64(size))
		last := first + stride*(n-1)
		if total += n; d.bad || total > int64(size) || last < 0 || last >= int64(size) || stride == 0 {
			d.bad = true
			return ranks.Of()
		}
		b.Runs = append(b.Runs, ranks.Strided(int32(first), int32(stride), int32(n)))
	}
	s := b.Done()
	i := 0
	s.All(func(w int32) bool {
		if s.Find(w) != i {
			d.bad = true
		}
		i++
		return !d.bad
	})
	return s
}
