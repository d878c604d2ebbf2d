package mpi

import (
	"bytes"
	"strings"
	"testing"
	"unsafe"

	"github.com/gorun-mpi/mpi/internal/coll"
)

// layoutUses are the calls that read with a layout, and those that write with one, in a world of one rank: each takes
// it in the place where the buffer base is.
func layoutUses[T any](w, ring *Comm, base []T, l Layout) (reads, writes map[string]func() error) {
	to, from := []float64{0}, []Layout{Of[float64]()}
	one := []Layout{l}
	three := func(name string, plan func(v coll.Way) (*coll.Plan, error), all map[string]func() error) {
		for _, v := range []coll.Way{coll.Blocking, coll.Nonblocking, coll.Persistent} {
			all[v.Named(name)] = func() error { return second(plan(v)) }
		}
	}
	reads = map[string]func() error{
		"SendLayout":  func() error { return SendLayout(w, base, l, 0, 0) },
		"IsendLayout": func() error { return second(IsendLayout(w, base, l, 0, 0)) },
		"Pack":        func() error { return second(Pack(nil, base, l)) },
	}
	writes = map[string]func() error{
		"RecvLayout":  func() error { return second(RecvLayout(w, base, l, 0, 0)) },
		"IrecvLayout": func() error { return second(IrecvLayout(w, base, l, 0, 0)) },
		"Unpack":      func() error { return second(Unpack(make([]byte, 1000), base, l)) },
	}
	three("BcastLayout", func(v coll.Way) (*coll.Plan, error) { return planBcastLayout(w, v, base, l, 0) }, reads)
	three("Gatherw", func(v coll.Way) (*coll.Plan, error) { return planGatherw(w, v, base, l, to, from, 0) }, reads)
	three("Scatterw", func(v coll.Way) (*coll.Plan, error) { return planScatterw(w, v, base, one, to, from[0], 0) },
		reads)
	three("Allgatherw", func(v coll.Way) (*coll.Plan, error) { return planAllgatherw(w, v, base, l, to, from) }, reads)
	three("Alltoallw", func(v coll.Way) (*coll.Plan, error) { return planAlltoallw(w, v, base, one, to, from) }, reads)
	three("Gatherw", func(v coll.Way) (*coll.Plan, error) { return planGatherw(w, v, to, from[0], base, one, 0) },
		writes)
	three("Scatterw", func(v coll.Way) (*coll.Plan, error) { return planScatterw(w, v, to, from, base, l, 0) }, writes)
	three("Allgatherw", func(v coll.Way) (*coll.Plan, error) { return planAllgatherw(w, v, to, from[0], base, one) },
		writes)
	three("Alltoallw", func(v coll.Way) (*coll.Plan, error) { return planAlltoallw(w, v, to, from, base, one) }, writes)
	two, pair := []Layout{l, l}, []Layout{from[0], from[0]} // a ring has two neighbours
	three("NeighborAlltoallw", func(v coll.Way) (*coll.Plan, error) {
		return planNeighborAlltoallw(ring, v, base, two, to, pair)
	}, reads)
	three("NeighborAlltoallw", func(v coll.Way) (*coll.Plan, error) {
		return planNeighborAlltoallw(ring, v, to, pair, base, two)
	}, writes)
	return reads, writes
}

// eachUse calls f with each use and its error.
func eachUse[T any](w, ring *Comm, base []T, l Layout, f func(name string, err error)) {
	reads, writes := layoutUses(w, ring, base, l)
	for _, uses := range []map[string]func() error{reads, writes} {
		for name, use := range uses {
			f(name, use())
		}
	}
}

// §3.3.1: the type in the communication call is the type of the variable; only bytes match any. So it is at every call
// that takes a layout, however the layout was made from others.
func TestLayoutOfAnotherType(t *testing.T) {
	i16, f64 := Of[int16](), Of[float64]()
	over(t)(1, func(w *Comm) {
		ring := ok(w.Cart([]int{1}, []bool{true}, false))
		m := matrix(4, 4)
		for name, l := range map[string]Layout{
			"Of":         Contiguous(4, i16),
			"Vector":     Vector(2, 2, 4, i16),
			"HVector":    HVector(2, 2, 16, i16),
			"Indexed":    Indexed([]int{2}, []int{0, 4}, i16),
			"HIndexed":   HIndexed([]int{2}, []int{0, 8}, i16),
			"Struct":     Struct(Field{1, 0, Struct(Field{1, 0, f64}, Field{4, 8, i16})}),
			"Resized":    Resized(Contiguous(4, i16), 0, 16),
			"Subarray":   Subarray([]int{8}, []int{4}, []int{1}, OrderC, i16),
			"Darray":     Darray(0, []ArrayDim{{Size: 4, How: DistributeBlock, Procs: 1}}, OrderC, i16),
			"of structs": Of[struct{ A, B int16 }](),
			"of arrays":  Of[[4]int16](),
		} {
			eachUse(w, ring, m, l, func(call string, err error) {
				check(err != nil, "%s of a layout by %s of int16 in a []float64: no error", call, name)
				is(err, ErrType)
				check(strings.Contains(err.Error(), "the layout has elements of int16, and float64 has none") &&
					strings.Contains(err.Error(), "Of[float64]"), "%s: %v", call, err)
			})
		}
		refused := func(err error, text string) {
			is(err, ErrType)
			check(strings.Contains(err.Error(), text), "%v; want %q", err, text)
		}
		refused(SendLayout(w, make([]int, 4), Of[int64](), 0, 0), "Of[int]()")
		refused(SendLayout(w, make([]uint32, 4), Of[int32](), 0, 0), "uint32 has none")
		refused(SendLayout(w, make([]particle, 4), Of[int16](), 0, 0), "mpi.particle has none")
		refused(SendLayout(w, m, Of[particle](), 0, 0), "the layout has elements of int32, and float64 has none")
	})
}

// These are of one type: what a struct or an array consists of, a type of another name, bytes of anything and anything
// in memory that is bytes, and nothing.
func TestLayoutOfTheSameType(t *testing.T) {
	type celsius float64
	type pair struct{ A, B float64 }
	over(t)(1, func(w *Comm) {
		m, p := matrix(4, 4), make([]particle, 4)
		for i, err := range []error{
			second(Pack(nil, m, Of[pair]())),
			second(Pack(nil, m, Of[celsius]())),
			second(Pack(nil, []celsius{1}, Of[float64]())),
			second(Pack(nil, make([]pair, 2), Vector(2, 1, 2, Of[float64]()))),
			second(Pack(nil, p, Of[particle]())),
			second(Pack(nil, p, HIndexed([]int{3}, []int{int(unsafe.Offsetof(p[0].Position))}, Of[float64]()))),
			second(Pack(nil, m, Contiguous(12, Of[byte]()))),
			second(Pack(nil, []complex128{1, 2}, HVector(2, 8, 16, Of[byte]()))),
			second(Pack(nil, make([]byte, 64), Vector(2, 1, 2, Of[float64]()))),
			second(Pack(nil, make([][16]byte, 4), Vector(2, 1, 2, Of[float64]()))),
			second(Pack(nil, m, Contiguous(0, Of[int16]()))),
			second(Pack(nil, m, Struct(Field{0, 0, Of[int16]()}, Field{2, 0, Of[float64]()}))),
		} {
			check(err == nil, "layout %d: %v", i, err)
		}
	})
}

// body is a struct of which only numbers can be sent.
type body struct {
	Name  string
	Mass  float64
	Place [3]float64
	Next  *body
	Kind  int32
	Tags  [2]struct {
		Text string
		N    uint16
	}
}

// numbersOf is what can be sent of n bodies.
func numbersOf(n int) Layout {
	var b body
	one := Struct(
		Field{4, int(unsafe.Offsetof(b.Mass)), Of[float64]()},
		Field{1, int(unsafe.Offsetof(b.Kind)), Of[int32]()},
		Field{1, int(unsafe.Offsetof(b.Tags) + unsafe.Offsetof(b.Tags[0].N)), Of[uint16]()},
		Field{1, int(unsafe.Offsetof(b.Tags) + unsafe.Sizeof(b.Tags[0]) + unsafe.Offsetof(b.Tags[0].N)), Of[uint16]()})
	return Contiguous(n, Resized(one, 0, int(unsafe.Sizeof(b))))
}

// The numbers of structs that hold strings and pointers move by every call; what is beside them stays.
func TestLayoutBetweenPointers(t *testing.T) {
	n := inShort(3000, 600) // past every buffer
	bodies := func(rank int) []body {
		all := make([]body, n)
		for i := range all {
			x := float64(1000*rank + i)
			all[i] = body{Name: strings.Repeat("x", rank+i%3), Mass: x, Place: [3]float64{x, -x, 1}, Next: &all[0], Kind: int32(i)}
			all[i].Tags[0].Text, all[i].Tags[1].N = "own", uint16(rank+i)
		}
		return all
	}
	everywhere(t, func(t *testing.T, run runner) {
		run(2, func(w *Comm) {
			me := w.Rank()
			l, other, single := numbersOf(n), 1-me, []Layout{numbersOf(n), Contiguous(0, Of[byte]())}
			holds := func(what string, got []body, from int) {
				want := bodies(from)
				for i := range got {
					want[i].Name, want[i].Next = strings.Repeat("x", me+i%3), &got[0] // the receiver's own
					check(got[i] == want[i], "%s: body %d is %+v, want %+v", what, i, got[i], want[i])
				}
			}
			mine, got := bodies(me), bodies(me)
			r := ok(IsendLayout(w, mine, l, other, 0))
			st := ok(RecvLayout(w, got, l, other, 0))
			ok(r.Wait())
			same(st.Bytes, int64(n*(4*8+4+2*2)))
			holds("RecvLayout", got, other)

			got = bodies(me)
			r = ok(IrecvLayout(w, got, l, other, 1))
			must(SendLayout(w, mine, l, other, 1))
			ok(r.Wait())
			holds("IrecvLayout", got, other)

			packed := ok(Pack(nil, mine, l))
			rest := ok(Unpack(packed, bodies(me), l))
			same(len(rest), 0)

			got = bodies(me)
			must(BcastLayout(w, got, l, 1))
			holds("BcastLayout", got, 1)
			got = bodies(me)
			if me == 0 {
				must(Scatterw(w, mine, []Layout{single[1], l}, got, single[1], 0))
			} else {
				must(Scatterw(w, []body(nil), nil, got, l, 0))
				holds("Scatterw", got, 0)
			}
			got = bodies(me)
			swapped := []Layout{single[1], l}
			if me == 1 {
				swapped = single
			}
			must(Alltoallw(w, mine, swapped, got, swapped))
			holds("Alltoallw", got, other)
		})
	})
}

// A layout that covers a byte of a pointer, a string or what is like it is an error that names it, at every call.
func TestLayoutCoversPointer(t *testing.T) {
	var b body
	size := int(unsafe.Sizeof(b))
	at := func(offset uintptr) int { return int(offset) }
	bytesAt := func(n, from int) Layout { return HIndexed([]int{n}, []int{from}, Of[byte]()) }
	over(t)(1, func(w *Comm) {
		ring := ok(w.Cart([]int{1}, []bool{true}, false))
		all := make([]body, 8)
		for i, c := range []struct {
			l    Layout
			name string
		}{
			{Of[float64](), "Name"},
			{bytesAt(1, at(unsafe.Offsetof(b.Name))+15), "Name"},
			{bytesAt(9, at(unsafe.Offsetof(b.Next))-8), "Next"},
			{bytesAt(1, 3*size+at(unsafe.Offsetof(b.Next))+7), "Next"},
			{Contiguous(size, Of[byte]()), "Name"},
			{Contiguous(2*size, Of[byte]()), "Name"},
			{bytesAt(5, size-1), "Name"}, // the end of one, and the next one's beginning
			{HVector(4, 1, size+8, bytesAt(8, at(unsafe.Offsetof(b.Place)))), "Next"},
			{HVector(4, 1, -size-4, bytesAt(8, 4*size+at(unsafe.Offsetof(b.Mass)))), "Name"},
			{HIndexed([]int{1}, []int{0, size, 2*size + 8}, numbersOf(1)), "Next"},
			{bytesAt(1, at(unsafe.Offsetof(b.Tags)+unsafe.Sizeof(b.Tags[0]))), "Tags[1].Text"},
			{Struct(Field{1, 0, numbersOf(2)}, Field{1, at(unsafe.Offsetof(b.Tags)), Of[byte]()}), "Tags[0].Text"},
		} {
			must(c.l.Err())
			eachUse(w, ring, all, c.l, func(call string, err error) {
				check(err != nil, "%s with layout %d: no error", call, i)
				is(err, ErrType)
				check(strings.Contains(err.Error(), "mpi.body."+c.name+" ") && strings.Contains(err.Error(), "Struct"),
					"%s with layout %d: %v; want %s", call, i, err, c.name)
			})
		}
		is(SendLayout(w, []string{"a"}, Of[byte](), 0, 0), ErrType)
		is(SendLayout(w, []*int{nil}, Contiguous(0, Of[byte]()), 0, 0), ErrType)
		is(Send(w, all, 0, 0), ErrType) // a body has not become a type that can be sent
		check(Of[body]().Err() != nil, "Of[body] has no error")
	})
}

// A Layout that no constructor has made is an error that says how to make one, of no elements too.
func TestZeroLayout(t *testing.T) {
	over(t)(1, func(w *Comm) {
		ring := ok(w.Cart([]int{1}, []bool{true}, false))
		const way = "the layout is the zero value; make one with Of, Vector or another constructor, and one of no " +
			"elements with Contiguous(0, Of[byte]())"
		eachUse(w, ring, matrix(4, 4), Layout{}, func(call string, err error) {
			is(err, ErrType)
			check(strings.Contains(err.Error(), way), "%s: %v", call, err)
		})
		same((Layout{}).Err().Error(), way)
		same((Layout{}).Size(), int64(0))
		nothing := Contiguous(0, Of[byte]())
		must(nothing.Err())
		r := ok(IsendLayout(w, matrix(4, 4), nothing, 0, 0))
		same(ok(RecvLayout(w, matrix(4, 4), nothing, 0, 0)).Bytes, int64(0))
		ok(r.Wait())
		check(bytes.Equal(ok(Pack([]byte("a"), matrix(1, 1), nothing)), []byte("a")), "nothing is packed as something")
	})
}
