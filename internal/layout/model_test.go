package layout

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// typemap is the slow model: what MPI 4.1 §5.1 says a datatype is, and nothing else.
type typemap struct {
	elems  []elem
	marked bool
	lb, ub int64 // if marked
}

type elem struct {
	at, size, align int64
	kind            uint8
}

func (m typemap) bounds() (lb, ub int64) {
	if m.marked {
		return m.lb, m.ub
	}
	lb, ub = m.trueBounds()
	align := int64(1)
	for _, e := range m.elems {
		align = max(align, e.align)
	}
	for (ub-lb)%align != 0 {
		ub++
	}
	return lb, ub
}

func (m typemap) trueBounds() (lb, ub int64) {
	for i, e := range m.elems {
		if i == 0 {
			lb, ub = e.at, e.at+e.size
		}
		lb, ub = min(lb, e.at), max(ub, e.at+e.size)
	}
	return lb, ub
}

func (m typemap) extent() int64 {
	lb, ub := m.bounds()
	return ub - lb
}

// add puts a copy of o at at.
func (m *typemap) add(o typemap, at int64) {
	for _, e := range o.elems {
		e.at += at
		m.elems = append(m.elems, e)
	}
	if o.marked {
		if !m.marked {
			m.marked, m.lb, m.ub = true, o.lb+at, o.ub+at
		}
		m.lb, m.ub = min(m.lb, o.lb+at), max(m.ub, o.ub+at)
	}
}

// offsets are those of the bytes in their order.
func (m typemap) offsets() []int64 {
	var all []int64
	for _, e := range m.elems {
		for i := range e.size {
			all = append(all, e.at+i)
		}
	}
	return all
}

// made is a Type and its model.
type made struct {
	t *Type
	m typemap
}

// chooser turns bytes into numbers; without bytes it gives 0.
type chooser struct{ from []byte }

func (c *chooser) n(below int64) int64 {
	if len(c.from) == 0 {
		return 0
	}
	b := c.from[0]
	c.from = c.from[1:]
	return int64(b) % below
}

func (c *chooser) between(low, high int64) int64 { return low + c.n(high-low+1) }

// build makes a Type by the constructors, and its model by their definitions in the standard.
func build(t testing.TB, c *chooser, depth int) made {
	must := func(typ *Type, err error) *Type {
		if err != nil {
			t.Fatal(err)
		}
		return typ
	}
	if depth == 0 || len(c.from) == 0 {
		size := []int64{8, 4, 1, 2, 16, 3, 12, 200}[c.n(8)]
		e := elem{size: size, align: []int64{8, 4, 1, 2, 8, 1, 4, 1}[slices.Index([]int64{8, 4, 1, 2, 16, 3, 12, 200}, size)],
			kind: uint8(size)}
		return made{Basic(e.kind, e.size, e.align), typemap{elems: []elem{e}}}
	}
	of := build(t, c, depth-1)
	var m typemap
	blocks := func(count, blocklen, step int64) {
		for i := range count {
			for j := range blocklen {
				m.add(of.m, i*step+j*of.m.extent())
			}
		}
	}
	switch c.n(10) {
	case 0:
		n := c.n(5)
		blocks(n, 1, of.m.extent())
		return made{must(Contiguous(n, of.t)), m}
	case 1:
		n, b, s := c.n(5), c.n(4), c.between(-3, 6)
		blocks(n, b, s*of.m.extent())
		return made{must(Vector(n, b, s, of.t)), m}
	case 2:
		n, b, s := c.n(4), c.n(4), c.between(-70, 70)
		blocks(n, b, s)
		return made{must(HVector(n, b, s, of.t)), m}
	case 3, 4:
		h := c.n(2) == 1
		lens, disps := make([]int64, c.n(6)), []int64(nil)
		for i := range lens {
			lens[i] = c.n(3)
			disps = append(disps, c.between(-6, 20))
			unit := of.m.extent()
			if h {
				unit = 1
			}
			for j := range lens[i] {
				m.add(of.m, disps[i]*unit+j*of.m.extent())
			}
		}
		if h {
			return made{must(HIndexed(lens, disps, of.t)), m}
		}
		return made{must(Indexed(lens, disps, of.t)), m}
	case 5:
		b, disps := []int64{c.n(3)}, make([]int64, c.n(6))
		for i := range disps {
			disps[i] = c.n(9) * int64(i+1)
			for j := range b[0] {
				m.add(of.m, (disps[i]+j)*of.m.extent())
			}
		}
		return made{must(Indexed(b, disps, of.t)), m}
	case 6: // a struct
		var parts []Part
		for range c.n(4) {
			p := build(t, c, depth-1)
			n, at := c.n(3), c.between(-100, 100)
			for j := range n {
				m.add(p.m, at+j*p.m.extent())
			}
			parts = append(parts, Part{p.t, n, p.t.Extent(), at})
		}
		return made{must(Of(parts...)), m}
	case 7:
		lb, extent := c.between(-20, 20), c.between(-10, 100)
		m = of.m
		m.marked, m.lb, m.ub = true, lb, lb+extent
		return made{must(Resized(of.t, lb, extent)), m}
	case 8:
		return buildSubarray(t, c, of)
	}
	return buildDarray(t, c, of)
}

// places calls visit with the place of every element of an array, and its indices.
func places(sizes []int64, order Order, visit func(index []int64, place int64)) {
	total := int64(1)
	for _, s := range sizes {
		total *= s
	}
	for place := range total {
		index, left := make([]int64, len(sizes)), place
		for _, d := range order.inner(len(sizes)) {
			index[d], left = left%sizes[d], left/sizes[d]
		}
		visit(index, place)
	}
}

func buildSubarray(t testing.TB, c *chooser, of made) made {
	dims := c.between(1, 3)
	sizes, subsizes, starts := make([]int64, dims), make([]int64, dims), make([]int64, dims)
	total := int64(1)
	for d := range sizes {
		sizes[d] = c.between(1, 4)
		subsizes[d] = c.between(1, sizes[d])
		starts[d] = c.between(0, sizes[d]-subsizes[d])
		total *= sizes[d]
	}
	order := Order(c.n(2))
	var m typemap
	places(sizes, order, func(index []int64, place int64) {
		for d, i := range index {
			if i < starts[d] || i >= starts[d]+subsizes[d] {
				return
			}
		}
		m.add(of.m, place*of.m.extent())
	})
	m.marked, m.lb, m.ub = true, 0, total*of.m.extent()
	typ, err := Subarray(sizes, subsizes, starts, order, of.t)
	if err != nil {
		t.Fatal(err)
	}
	return made{typ, m}
}

func buildDarray(t testing.TB, c *chooser, of made) made {
	dims := make([]Dimension, c.between(1, 3))
	sizes, total, procs := make([]int64, len(dims)), int64(1), int64(1)
	for d := range dims {
		x := Dimension{Size: c.between(1, 7), How: Distribution(c.n(3)), Procs: c.between(1, 4)}
		switch x.How {
		case None:
			x.Procs = 1
		case Block:
			if c.n(2) == 1 {
				x.Block = c.between((x.Size+x.Procs-1)/x.Procs, x.Size)
			}
		case Cyclic:
			x.Block = c.n(4)
		}
		dims[d], sizes[d], total, procs = x, x.Size, total*x.Size, procs*x.Procs
	}
	rank, order := c.n(procs), Order(c.n(2))
	coords, left := make([]int64, len(dims)), rank
	for d := len(dims) - 1; d >= 0; d-- {
		coords[d], left = left%dims[d].Procs, left/dims[d].Procs
	}
	var m typemap
	places(sizes, order, func(index []int64, place int64) {
		for d, i := range index {
			block := dims[d].Block
			switch {
			case dims[d].How == None:
				block = dims[d].Size
			case dims[d].How == Block && block == 0:
				block = (dims[d].Size + dims[d].Procs - 1) / dims[d].Procs
			case block == 0:
				block = 1
			}
			if i/block%dims[d].Procs != coords[d] {
				return
			}
		}
		m.add(of.m, place*of.m.extent())
	})
	m.marked, m.lb, m.ub = true, 0, total*of.m.extent()
	typ, err := Darray(rank, dims, order, of.t)
	if err != nil {
		t.Fatal(err)
	}
	return made{typ, m}
}

// compare checks all that a Type promises.
func compare(t testing.TB, x made, r *rand.Rand) {
	offsets := x.m.offsets()
	if len(offsets) > 20_000 {
		return
	}
	size := int64(len(offsets))
	lb, ub := x.t.Bounds()
	wantLB, wantUB := x.m.bounds()
	lo, hi := x.t.TrueBounds()
	wantLo, wantHi := x.m.trueBounds()
	if x.t.Size() != size || lb != wantLB || ub != wantUB || lo != wantLo || hi != wantHi {
		t.Fatalf("size %d, bounds %d %d, true bounds %d %d; want %d, %d %d, %d %d",
			x.t.Size(), lb, ub, lo, hi, size, wantLB, wantUB, wantLo, wantHi)
	}
	seen, twice, straight := map[int64]bool{}, false, true
	for i, o := range offsets {
		twice = twice || seen[o]
		straight = straight && o == offsets[0]+int64(i)
		seen[o] = true
	}
	if x.t.Overlaps() != twice {
		t.Fatalf("overlaps: %v, want %v", x.t.Overlaps(), twice)
	}
	if at, ok := x.t.Contiguous(); ok != straight || ok && size > 0 && at != offsets[0] {
		t.Fatalf("contiguous: %v at %d, want %v", ok, at, straight)
	}

	inPieces(t, x.t, offsets, 1+r.Int64N(48))
	inRuns(t, x.t, offsets)

	// Memory of just the true bounds: what is touched beyond it is seen by the fences.
	const fence = 64
	all := make([]byte, hi-lo+2*fence)
	for i := range all {
		all[i] = byte(r.Uint32())
	}
	mem, before := all[fence:fence+hi-lo:fence+hi-lo], bytes.Clone(all)
	origin := -lo
	want := make([]byte, size)
	for i, o := range offsets {
		want[i] = mem[o+origin]
	}
	if origin < 0 || origin > hi-lo { // displacement 0 is not in it
		if size > 0 && x.t.Pack(make([]byte, size), mem, origin, 0) == nil {
			t.Fatalf("no error where displacement 0 is at %d of %d", origin, hi-lo)
		}
		mem, origin = append(make([]byte, max(lo, 0)), mem...), max(origin, 0)
		mem = append(mem, make([]byte, max(0, origin-int64(len(mem))))...)
		all = nil
	}
	for split := int64(0); split <= size; split += 1 + size/300 {
		got := make([]byte, size)
		if err := x.t.Pack(got[split:], mem, origin, split); err != nil {
			t.Fatal(err)
		}
		if err := x.t.Pack(got[:split], mem, origin, 0); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Fatalf("packed, split at %d: byte %d of %d is wrong", split, differ(got, want), size)
		}
		if from := split / 2; size-split-from > 0 { // a middle
			part := make([]byte, size-split-from)
			if err := x.t.Pack(part, mem, origin, from); err != nil || !bytes.Equal(part, want[from:size-split]) {
				t.Fatalf("packed from %d to %d: byte %d is wrong, or %v", from, size-split, differ(part, want[from:]), err)
			}
		}
		if twice {
			continue
		}
		to, wantTo := bytes.Clone(mem), bytes.Clone(mem)
		packed := make([]byte, size)
		for i, o := range offsets {
			packed[i] = byte(r.Uint32())
			wantTo[o+origin] = packed[i]
		}
		for _, half := range [][2]int64{{split, size}, {0, split}} {
			if err := x.t.Unpack(packed[half[0]:half[1]], to, origin, half[0]); err != nil {
				t.Fatal(err)
			}
		}
		if !bytes.Equal(to, wantTo) {
			t.Fatalf("unpacked, split at %d: byte %d of the memory is wrong", split, differ(to, wantTo))
		}
	}
	if all != nil && !bytes.Equal(all, before) {
		t.Fatal("Pack has written to the memory")
	}
	refuse(t, x.t, mem, origin)
}

// inPieces checks that Within visits the bytes that are in the data, in pieces of memory of any length, and no others.
func inPieces(t testing.TB, x *Type, offsets []int64, period int64) {
	want, got := make([]bool, period), make([]bool, period)
	for _, o := range offsets {
		want[((o%period)+period)%period] = true
	}
	all := x.Within(period, func(lo, hi int64) bool {
		for ; lo < hi; lo++ {
			got[lo] = true
		}
		return true
	})
	if !all || !slices.Equal(got, want) {
		t.Fatalf("within pieces of %d bytes: %v, want %v", period, got, want)
	}
	if len(offsets) > 0 && x.Within(period, func(lo, hi int64) bool { return false }) {
		t.Fatal("Within does not say that it was ended")
	}
}

// differ is where a is not b.
func differ(a, b []byte) int {
	for i := range a {
		if a[i] != b[i] {
			return i
		}
	}
	return len(a)
}

// refuse checks that one byte less at either end, or a byte more than there is, is an error and touches nothing.
func refuse(t testing.TB, x *Type, mem []byte, origin int64) {
	if x.Size() == 0 {
		return
	}
	lo, hi := x.TrueBounds()
	one := make([]byte, 1)
	for _, c := range []struct {
		what           string
		length, origin int64
		from           int64
	}{
		{"a byte less at the end", hi + origin - 1, origin, 0},
		{"a byte less at the beginning", int64(len(mem)), -lo - 1, 0},
		{"beyond the packed form", int64(len(mem)), origin, x.Size()},
		{"before the packed form", int64(len(mem)), origin, -1},
	} {
		if c.length < 0 || c.length > int64(len(mem)) {
			continue
		}
		if x.Pack(one, mem[:c.length], c.origin, c.from) == nil || x.Unpack(one, mem[:c.length], c.origin, c.from) == nil {
			t.Fatalf("%s is no error", c.what)
		}
	}
}

// signatures of two Types are equal if and only if their sequences of kinds are.
func signatures(t testing.TB, a, b made) {
	kinds := func(m typemap) (k []uint8) {
		for _, e := range m.elems {
			k = append(k, e.kind)
		}
		return k
	}
	if same := slices.Equal(kinds(a.m), kinds(b.m)); same != (a.t.Signature() == b.t.Signature()) {
		t.Fatalf("signatures %x and %x; the kinds are the same: %v", a.t.Signature(), b.t.Signature(), same)
	}
}

func FuzzModel(f *testing.F) {
	f.Add([]byte{3, 1, 3, 1, 4})
	f.Add([]byte{8, 2, 3, 2, 1, 4, 3, 1})
	f.Fuzz(func(t *testing.T, data []byte) {
		c := &chooser{data}
		r := rand.New(rand.NewPCG(1, uint64(len(data))))
		x := build(t, c, int(c.between(1, 3)))
		compare(t, x, r)
		signatures(t, x, build(t, c, 2))
	})
}

// TestModel is the fuzz target with numbers of a seed.
func TestModel(t *testing.T) {
	rounds := 20_000
	if testing.Short() {
		rounds = 4_000
	}
	for seed := range rounds {
		r := rand.New(rand.NewPCG(uint64(seed), 7))
		data := make([]byte, r.IntN(60))
		for i := range data {
			data[i] = byte(r.Uint32())
		}
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			c := &chooser{data}
			x := build(t, c, int(c.between(1, 3)))
			compare(t, x, r)
			signatures(t, x, build(t, c, 2))
		})
	}
}
