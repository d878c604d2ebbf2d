package layout

import (
	"math"
	"strings"
	"testing"
)

func must(t testing.TB, typ *Type, err error) *Type {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	return typ
}

// TestRefused checks that what cannot be said is an error that names it, and never a Type with numbers that have
// wrapped around.
func TestRefused(t *testing.T) {
	f64 := Basic(1, 8, 8)
	far, err := HIndexed([]int64{1}, []int64{math.MaxInt64 - 100}, f64)
	if err != nil {
		t.Fatal(err)
	}
	big, err := Contiguous(1<<59, f64)
	if err != nil {
		t.Fatal(err)
	}
	block := Dimension{Size: 10, How: Block, Procs: 2}
	for _, c := range []struct {
		want string
		make func() (*Type, error)
	}{
		{"counts are 0 or more", func() (*Type, error) { return Contiguous(-1, f64) }},
		{"counts are 0 or more", func() (*Type, error) { return Vector(2, -1, 1, f64) }},
		{"counts are 0 or more", func() (*Type, error) { return Indexed([]int64{1, -3}, []int64{0, 4}, f64) }},
		{"one length, or one for each", func() (*Type, error) { return Indexed([]int64{1, 2}, []int64{0, 4, 8}, f64) }},
		{"one length, or one for each", func() (*Type, error) { return Indexed(nil, []int64{0}, f64) }},
		{"2⁶³", func() (*Type, error) { return Contiguous(1<<60, f64) }},
		{"2⁶³", func() (*Type, error) { return Contiguous(2, big) }},
		{"2⁶³", func() (*Type, error) { return Vector(2, 1, 1<<62, f64) }},
		{"2⁶³", func() (*Type, error) { return Vector(3, 1, math.MinInt64/8, f64) }},
		{"2⁶³", func() (*Type, error) { return HVector(3, 1, math.MinInt64, f64) }},
		{"2⁶³", func() (*Type, error) { return HIndexed([]int64{20}, []int64{math.MaxInt64 - 100}, f64) }},
		{"2⁶³", func() (*Type, error) { return HIndexed([]int64{1}, []int64{math.MaxInt64}, f64) }},
		{"2⁶³", func() (*Type, error) { return HIndexed([]int64{1}, []int64{math.MinInt64, math.MaxInt64 - 8}, f64) }},
		{"2⁶³", func() (*Type, error) { return Indexed([]int64{1}, []int64{1 << 61}, f64) }},
		{"2⁶³", func() (*Type, error) { return Of(Part{Type: far, Count: 1, At: 200}) }},
		{"2⁶³", func() (*Type, error) { return Resized(f64, math.MaxInt64, 1) }},
		{"2⁶³", func() (*Type, error) {
			return Subarray([]int64{1 << 30, 1 << 30, 1 << 30}, []int64{1, 1, 1}, []int64{0, 0, 0}, C, f64)
		}},
		{"one of each for every", func() (*Type, error) { return Subarray(nil, nil, nil, C, f64) }},
		{"one of each for every", func() (*Type, error) { return Subarray([]int64{4}, []int64{2, 1}, []int64{0}, C, f64) }},
		{"dimension 1: a part of 3 from 2 on", func() (*Type, error) {
			return Subarray([]int64{4, 4}, []int64{2, 3}, []int64{0, 2}, C, f64)
		}},
		{"dimension 0", func() (*Type, error) { return Subarray([]int64{4}, []int64{0}, []int64{0}, C, f64) }},
		{"dimension 0", func() (*Type, error) { return Subarray([]int64{4}, []int64{2}, []int64{-1}, C, f64) }},
		{"dimension 0", func() (*Type, error) { return Subarray([]int64{4}, []int64{2}, []int64{math.MaxInt64}, C, f64) }},
		{"no dimensions", func() (*Type, error) { return Darray(0, nil, C, f64) }},
		{"rank 2 is not", func() (*Type, error) { return Darray(2, []Dimension{block}, C, f64) }},
		{"rank -1 is not", func() (*Type, error) { return Darray(-1, []Dimension{block}, C, f64) }},
		{"at least 1, 1 and 0", func() (*Type, error) { return Darray(0, []Dimension{{Size: 10, How: Block}}, C, f64) }},
		{"no distribution 3", func() (*Type, error) { return Darray(0, []Dimension{{Size: 1, How: 3, Procs: 1}}, C, f64) }},
		{"it needs 1", func() (*Type, error) { return Darray(0, []Dimension{{Size: 10, Procs: 2}}, C, f64) }},
		{"do not hold 10", func() (*Type, error) {
			return Darray(0, []Dimension{{Size: 10, How: Block, Block: 4, Procs: 2}}, C, f64)
		}},
	} {
		if got, err := c.make(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v, %v; want an error with %q", got, err, c.want)
		}
	}
}

// TestMany checks that what is regular costs the same memory and time for any number of elements.
func TestMany(t *testing.T) {
	f64 := Basic(1, 8, 8)
	rows, err := Vector(1<<40, 3, 1<<10, f64)
	columns := must(t, rows, err)
	if columns.Size() != 3<<43 || columns.Extent() != ((1<<40)-1)<<13+24 || columns.Overlaps() {
		t.Errorf("size %d, extent %d, overlaps %v", columns.Size(), columns.Extent(), columns.Overlaps())
	}
	cyclic, err := Darray(1, []Dimension{{Size: 1 << 50, How: Cyclic, Procs: 4}}, C, f64)
	if must(t, cyclic, err).Size() != 1<<51 || cyclic.prog.depth != 1 {
		t.Errorf("cyclic: size %d, depth %d", cyclic.Size(), cyclic.prog.depth)
	}
	if err := columns.Fits(1<<30, 0); err == nil || !strings.Contains(err.Error(), "needs") {
		t.Errorf("a buffer that is too short: %v", err)
	}
}

// TestNormal checks that typemaps that are said in different ways have one program.
func TestNormal(t *testing.T) {
	f64 := Basic(1, 8, 8)
	pairs, _ := Contiguous(2, f64)
	for _, c := range []struct {
		name  string
		make  func() (*Type, error)
		depth int
		runs  int64
	}{
		{"a vector without gaps", func() (*Type, error) { return Vector(5, 3, 3, f64) }, 0, 1},
		{"regular displacements", func() (*Type, error) { return Indexed([]int64{2}, []int64{0, 5, 10, 15}, f64) }, 1, 4},
		{"neighbours", func() (*Type, error) { return Indexed([]int64{1, 2, 1}, []int64{7, 8, 10}, f64) }, 0, 1},
		{"neighbours, regular", func() (*Type, error) { return Indexed([]int64{1}, []int64{0, 1, 4, 5, 8, 9}, f64) }, 1, 3},
		{"a vector of a vector that goes on", func() (*Type, error) {
			v, _ := Vector(4, 1, 2, f64)
			v, _ = Resized(v, 0, 64)
			return Contiguous(3, v)
		}, 1, 12},
		{"all of an array", func() (*Type, error) {
			return Subarray([]int64{3, 4, 5}, []int64{3, 4, 5}, []int64{0, 0, 0}, Fortran, f64)
		}, 0, 1},
		{"whole rows", func() (*Type, error) {
			return Subarray([]int64{9, 4, 5}, []int64{2, 4, 5}, []int64{3, 0, 0}, C, pairs)
		}, 0, 1},
		{"lists in lists", func() (*Type, error) {
			in, _ := Indexed([]int64{1}, []int64{0, 2, 5}, f64)
			return HIndexed([]int64{1}, []int64{0, 1000, 3000}, in)
		}, 1, 9},
	} {
		typ, err := c.make()
		if must(t, typ, err).prog.depth != c.depth || typ.prog.runs() != c.runs {
			t.Errorf("%s: depth %d, %d runs; want %d, %d", c.name, typ.prog.depth, typ.prog.runs(), c.depth, c.runs)
		}
	}
}

// TestDeep checks that nesting that does not double the size is bounded, and lists of lists do not grow into their
// product.
func TestDeep(t *testing.T) {
	x := Basic(1, 1, 1)
	var err error
	for i := range int64(100_000) {
		if x, err = Of(Part{Type: x, Count: 1}, Part{Type: Basic(2, 1, 1), Count: 1, At: 2*i + 3}); err != nil {
			break
		}
	}
	if err == nil || !strings.Contains(err.Error(), "nested") {
		t.Errorf("100,000 levels: %v, want an error", err)
	}

	places := make([]int64, 1000)
	for i := range places {
		places[i] = int64(i * i)
	}
	list := Basic(1, 1, 1)
	for range 3 {
		if list, err = HIndexed([]int64{1}, places, list); err != nil {
			t.Fatal(err)
		}
		for i := range places {
			places[i] *= 1 << 20
		}
	}
	if list.Size() != 1e9 || len(list.prog.parts) != 1000 {
		t.Errorf("size %d, %d parts", list.Size(), len(list.prog.parts))
	}
}

func BenchmarkPack(b *testing.B) {
	f64 := Basic(1, 8, 8)
	const packed = 1 << 20
	vector := func(n, stride int64) func() (*Type, error) {
		return func() (*Type, error) { return Vector(packed/8/n, n, stride, f64) }
	}
	for _, c := range []struct {
		name string
		make func() (*Type, error)
	}{
		{"contiguous", vector(1, 1)}, {"1of2", vector(1, 2)}, {"1of4", vector(1, 4)}, {"1of16", vector(1, 16)},
		{"3of4", vector(3, 4)}, {"32of64", vector(32, 64)},
		{"face", func() (*Type, error) {
			return Subarray([]int64{362, 362, 4}, []int64{362, 362, 1}, []int64{0, 0, 2}, C, f64)
		}},
		{"indexed", func() (*Type, error) {
			d := make([]int64, packed/8)
			for i := range d {
				d[i] = int64(i*2 + i*i%2)
			}
			d[1] = 2
			return Indexed([]int64{1}, d, f64)
		}},
	} {
		typ, err := c.make()
		must(b, typ, err)
		_, hi := typ.TrueBounds()
		mem, buf := make([]byte, hi), make([]byte, typ.Size())
		b.Run("pack/"+c.name, func(b *testing.B) {
			b.SetBytes(typ.Size())
			for b.Loop() {
				if err := typ.Pack(buf, mem, 0, 0); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run("unpack/"+c.name, func(b *testing.B) {
			b.SetBytes(typ.Size())
			for b.Loop() {
				if err := typ.Unpack(buf, mem, 0, 0); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
