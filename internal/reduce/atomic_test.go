package reduce

import (
	"bytes"
	"encoding/binary"
	"math"
	"reflect"
	"slices"
	"sync"
	"testing"
	"unsafe"
)

// atomicKind is a kind with Fetchers: the plain loop of each of its operators.
type atomicKind struct {
	kind  reflect.Kind
	size  uintptr
	loops map[Atomic]func(a, b uint64) uint64
	nan   func(bits uint64) bool
	more  []uint64 // elements that Samples leaves out
}

// loop is the loop of an operator for the bits of one element.
func loop[T any](f func(dst, a, b []T)) func(a, b uint64) uint64 {
	return func(a, b uint64) (c uint64) {
		dst := []T{*new(T)}
		f(dst, []T{*(*T)(unsafe.Pointer(&a))}, []T{*(*T)(unsafe.Pointer(&b))})
		*(*T)(unsafe.Pointer(&c)) = dst[0]
		return c
	}
}

func moving[T any](nan func(T) bool) *atomicKind {
	return &atomicKind{kind: kindOf[T](), size: unsafe.Sizeof(*new(T)),
		nan: func(b uint64) bool { return nan(*(*T)(unsafe.Pointer(&b))) },
		loops: map[Atomic]func(a, b uint64) uint64{
			AtomicReplace: loop(func(dst, _, b []T) { copy(dst, b) }),
			AtomicNoOp:    loop(func(dst, a, _ []T) { copy(dst, a) }),
		}}
}

func adding[T Number](more ...T) *atomicKind {
	k := moving(func(v T) bool { return v != v })
	k.loops[AtomicSum], k.loops[AtomicProd] = loop(Sum[T]), loop(Prod[T])
	for _, v := range more {
		var b uint64
		*(*T)(unsafe.Pointer(&b)) = v
		k.more = append(k.more, b)
	}
	return k
}

func ordered[T Real](more ...T) *atomicKind {
	k := adding(more...)
	k.loops[AtomicMin], k.loops[AtomicMax] = loop(Min[T]), loop(Max[T])
	return k
}

func whole[T Integer]() *atomicKind {
	k := ordered[T]()
	k.loops[AtomicBitAnd], k.loops[AtomicBitOr], k.loops[AtomicBitXor] = loop(BitAnd[T]), loop(BitOr[T]),
		loop(BitXor[T])
	return withLogic[T](k)
}

func withLogic[T Logical](k *atomicKind) *atomicKind {
	k.loops[AtomicLogicalAnd], k.loops[AtomicLogicalOr] = loop(LogicalAnd[T]), loop(LogicalOr[T])
	k.loops[AtomicLogicalXor] = loop(LogicalXor[T])
	return k
}

func atomicKinds() []*atomicKind {
	zero, nan, inf := math.Copysign(0, -1), math.NaN(), math.Inf(1)
	return []*atomicKind{
		whole[int8](), whole[int16](), whole[int32](), whole[int64](),
		whole[uint8](), whole[uint16](), whole[uint32](), whole[uint64](),
		ordered(float32(zero), float32(nan), float32(inf), float32(-inf)), ordered(zero, nan, inf, -inf,
			math.MaxFloat64),
		adding(complex64(complex(zero, 1)), complex64(complex(nan, 1))),
		withLogic[bool](moving(func(bool) bool { return false })),
	}
}

// Each operator has a Fetcher for the kinds that the plain loop has, of at most 8 bytes, and no other.
func TestFetcherKinds(t *testing.T) {
	loops := map[reflect.Kind]map[Atomic]func(a, b uint64) uint64{}
	for _, k := range atomicKinds() {
		loops[k.kind] = k.loops
	}
	for k := reflect.Kind(0); k <= reflect.UnsafePointer+1; k++ {
		for a := range Atomics + 2 {
			if has, want := FetcherOf(a, k) != nil, loops[k][a] != nil; has != want {
				t.Errorf("operator %d has a Fetcher for %v: %v, want %v", a, k, has, want)
			}
		}
	}
	for a := range Atomics {
		if got, ok := AtomicOf(a.String()); got != a || !ok {
			t.Errorf("%v is found as %v, %v", a, got, ok)
		}
	}
	for _, name := range []string{"", "sum", "MinLoc"} {
		if a, ok := AtomicOf(name); ok {
			t.Errorf("%q is found as %v", name, a)
		}
	}
	for _, c := range []struct{ got, want reflect.Kind }{
		{AtomicKind[id](), kindOf[int]()}, {AtomicKind[flags](), reflect.Uint16}, {AtomicKind[celsius](),
			reflect.Float64},
		{AtomicKind[phase](), reflect.Complex64}, {AtomicKind[yes](), reflect.Bool}, {AtomicKind[complex128](),
			reflect.Invalid},
		{AtomicKind[struct{}](), reflect.Invalid}, {AtomicKind[string](), reflect.Invalid},
		{AtomicKind[[2]int](), reflect.Invalid}, {AtomicKind[Loc[int]](), reflect.Invalid},
	} {
		if c.got != c.want {
			t.Errorf("the kind is %v, want %v", c.got, c.want)
		}
	}
}

// Each Fetcher leaves what the plain loop has, returns the element as it was, and changes no other byte, wherever in a
// word the element is, and whatever the operand has behind its first bytes.
func TestFetchers(t *testing.T) {
	for _, k := range atomicKinds() {
		all := append(Samples(k.kind), k.more...)
		for a, want := range k.loops {
			f := FetcherOf(a, k.kind)
			for i, x := range all {
				for j, y := range all {
					at := uintptr(i+j) * k.size % 16
					mem, words, junk := surrounded(at, k.size, x)
					if k.size < 8 {
						y |= 0xa5a5a5a5a5a5a5a5 << (8 * k.size)
					}
					if before := f(unsafe.Add(mem, at), y); before != x {
						t.Fatalf("%v of %v, %#x and %#x, returns %#x", a, k.kind, x, y, before)
					}
					got, sum := elementOf(words, at, k.size), want(x, y)
					if got != sum && !(k.nan(got) && k.nan(sum)) {
						t.Fatalf("%v of %v, %#x and %#x, is %#x, want %#x", a, k.kind, x, y, got, sum)
					}
					if copy(words[at:at+k.size], junk[at:]); !bytes.Equal(words, junk) {
						t.Fatalf("%v of %v at byte %d leaves %x, want the neighbours %x", a, k.kind, at, words, junk)
					}
				}
			}
		}
	}
}

// surrounded is 24 bytes, in words, with an element at a place. junk is these bytes once more.
func surrounded(at, size uintptr, element uint64) (mem unsafe.Pointer, b, junk []byte) {
	words := []uint64{0xf0e1d2c3b4a59687, 0x8899aabbccddeeff, 0xfedcba9876543210}
	b = bits(words)
	copy(b[at:at+size], binary.LittleEndian.AppendUint64(nil, element))
	return unsafe.Pointer(&words[0]), b, bytes.Clone(b)
}

func elementOf(b []byte, at, size uintptr) uint64 {
	var e [8]byte
	copy(e[:], b[at:at+size])
	return binary.LittleEndian.Uint64(e[:])
}

// CompareAndSwap of each size, at each place of a word, sets an element that is as expected, leaves another one, and
// changes no neighbour.
func TestCompareAndSwap(t *testing.T) {
	for _, size := range []uintptr{1, 2, 4, 8} {
		ones := uint64(1)<<(8*size) - 1
		for at := uintptr(0); at < 16; at += size {
			for _, c := range []struct{ is, before, after uint64 }{
				{0, 0, ones}, {ones, ones, 0}, {5, 5, 6}, {5, 5, 5}, {5, 6, 7}, {0, ones, 1}, {ones, ones >> 1, 0},
				{1, 1 | ones&^(ones>>1), 2},
			} {
				mem, words, junk := surrounded(at, size, c.is)
				was := CompareAndSwap(unsafe.Add(mem, at), size, c.before, c.after)
				if c.is == c.before {
					copy(junk[at:at+size], binary.LittleEndian.AppendUint64(nil, c.after))
				}
				if was != c.is || !bytes.Equal(words, junk) {
					t.Fatalf("%d bytes at byte %d that are %#x, if %#x then %#x: was %#x, and the memory %x, want %x",
						size, at, c.is, c.before, c.after, was, words, junk)
				}
			}
		}
	}
}

// Elements of one and two bytes share words. Each has all updates that goroutines make of it at the same time, and none
// of its neighbours'.
func TestNeighbours(t *testing.T) {
	rounds := 20_000
	if testing.Short() {
		rounds = 2_000
	}
	for _, k := range []struct {
		kind reflect.Kind
		size uintptr
	}{{reflect.Int8, 1}, {reflect.Uint8, 1}, {reflect.Int16, 2}, {reflect.Uint16, 2}} {
		words := make([]uint64, 1)
		n := 8 / k.size
		sum, swapped := FetcherOf(AtomicSum, k.kind), n-1 // the last element counts by CompareAndSwap
		var running sync.WaitGroup
		for i := range n {
			for range 2 {
				running.Go(func() {
					addr := unsafe.Add(unsafe.Pointer(&words[0]), i*k.size)
					mask := uint64(1)<<(8*k.size) - 1
					for range rounds {
						if i != swapped {
							sum(addr, uint64(i+1))
							continue
						}
						for was := uint64(0); ; {
							now := CompareAndSwap(addr, k.size, was, (was+uint64(i+1))&mask)
							if now == was {
								break
							}
							was = now
						}
					}
				})
			}
		}
		running.Wait()
		for i := range n {
			want := uint64(2*rounds*int(i+1)) & (1<<(8*k.size) - 1)
			if got := elementOf(bits(words), i*k.size, k.size); got != want {
				t.Errorf("element %d of %v is %d, want %d", i, k.kind, got, want)
			}
		}
	}
}

// table makes the results of an operator for all samples of a kind.
func (k *atomicKind) table(f func(a, b uint64) uint64) (results []uint64) {
	s := Samples(k.kind)
	for _, x := range s {
		for _, y := range s {
			results = append(results, f(x, y))
		}
	}
	return results
}

// Each operator is recognized by its results, for every kind.
func TestRecognize(t *testing.T) {
	for _, k := range atomicKinds() {
		for _, s := range Samples(k.kind) {
			if k.size < 8 && s>>(8*k.size) != 0 {
				t.Errorf("%#x is no sample of %v", s, k.kind)
			}
		}
		for a, f := range k.loops {
			results := k.table(f)
			if got, ok := Recognize(k.kind, results); !ok || got != a {
				t.Errorf("%v of %v is recognized as %v, %v", a, k.kind, got, ok)
			}
			for i := 0; i < len(results); i += 7 { // a result that differs is another operator's
				if k.nan(results[i]) {
					continue // any NaN is like another one
				}
				results[i] ^= 1
				if got, ok := Recognize(k.kind, results); ok && got == a {
					t.Errorf("%v of %v is recognized with another result %d", a, k.kind, i)
				}
				results[i] ^= 1
			}
		}
		for _, constant := range Samples(k.kind) {
			if got, ok := Recognize(k.kind, k.table(func(a, b uint64) uint64 { return constant })); ok {
				t.Errorf("the constant %#x of %v is recognized as %v", constant, k.kind, got)
			}
		}
	}
	if a, ok := Recognize(reflect.String, nil); ok {
		t.Errorf("an operator of strings is recognized as %v", a)
	}
	nand := func(a, b uint64) uint64 { return 1 - a&b }
	for _, k := range atomicKinds() {
		if k.kind != reflect.Bool {
			continue
		}
		if a, ok := Recognize(k.kind, k.table(nand)); ok {
			t.Errorf("not and is recognized as %v", a)
		}
	}
}

// clamped checks that a sum that ends at the greatest and the least number is not recognized as Sum, and no other one.
func clamped[T Real](t *testing.T, least, greatest T) {
	t.Helper()
	k := ordered[T]()
	results := k.table(loop(func(dst, a, b []T) {
		switch c := a[0] + b[0]; {
		case b[0] > 0 && (c < a[0] || c > greatest):
			dst[0] = greatest
		case b[0] < 0 && (c > a[0] || c < least):
			dst[0] = least
		default:
			dst[0] = c
		}
	}))
	if a, ok := Recognize(k.kind, results); ok {
		t.Errorf("a sum of %v that ends at %v and %v is recognized as %v", k.kind, least, greatest, a)
	}
}

func TestRecognizeClampedSum(t *testing.T) {
	clamped[int8](t, math.MinInt8, math.MaxInt8)
	clamped[int16](t, math.MinInt16, math.MaxInt16)
	clamped[int32](t, math.MinInt32, math.MaxInt32)
	clamped[int64](t, math.MinInt64, math.MaxInt64)
	clamped[uint8](t, 0, math.MaxUint8)
	clamped[uint16](t, 0, math.MaxUint16)
	clamped[uint32](t, 0, math.MaxUint32)
	clamped[uint64](t, 0, math.MaxUint64)
	clamped[float32](t, -math.MaxFloat32, math.MaxFloat32)
	clamped[float64](t, -math.MaxFloat32, math.MaxFloat32)
	clamped[float64](t, -1e100, 1e100)
}

// A maximum that passes over NaN is not Max.
func TestRecognizeMaxWithoutNaN(t *testing.T) {
	k := ordered[float64]()
	if a, ok := Recognize(k.kind, k.table(loop(func(dst, a, b []float64) {
		if dst[0] = a[0]; b[0] > a[0] {
			dst[0] = b[0]
		}
	}))); ok {
		t.Errorf("it is recognized as %v", a)
	}
}

// An operator of complex128, which has no Fetcher, is recognized by its results too.
func TestRecognizeComplex(t *testing.T) {
	for a := range Atomics {
		has := Has[complex128](a)
		if want := a == AtomicSum || a == AtomicProd || a == AtomicReplace || a == AtomicNoOp; has != want {
			t.Errorf("%v combines complex128: %v, want %v", a, has, want)
		}
		if !has {
			continue
		}
		if got, ok := RecognizeComplex(func(inout, in []complex128) { Apply(a, inout, in) }); !ok || got != a {
			t.Errorf("%v is recognized as %v, %v", a, got, ok)
		}
	}
	type parts = [2]float64
	for name, f := range map[string]func(a, b parts) parts{
		"a difference":         func(a, b parts) parts { return parts{a[0] - b[0], a[1] - b[1]} },
		"a product of parts":   func(a, b parts) parts { return parts{a[0] * b[0], a[1] * b[1]} },
		"a sum up to 1e30":     func(a, b parts) parts { return parts{min(a[0]+b[0], 1e30), a[1] + b[1]} },
		"a sum of real parts":  func(a, b parts) parts { return parts{a[0] + b[0], a[1]} },
		"another's real part":  func(a, b parts) parts { return parts{b[0], a[1]} },
		"a sum, without signs": func(a, b parts) parts { return parts{math.Abs(a[0] + b[0]), a[1] + b[1]} },
	} {
		if a, ok := RecognizeComplex(func(inout, in []complex128) {
			for i := range inout {
				*(*parts)(unsafe.Pointer(&inout[i])) = f(*(*parts)(unsafe.Pointer(&inout[i])),
					*(*parts)(unsafe.Pointer(&in[i])))
			}
		}); ok {
			t.Errorf("%s is recognized as %v", name, a)
		}
	}
}

// Apply gives the results of so many atomic steps, and there is one for each Fetcher.
func TestApply(t *testing.T) {
	applies[int8](t)
	applies[int16](t)
	applies[int32](t)
	applies[int64](t)
	applies[uint8](t)
	applies[uint16](t)
	applies[uint32](t)
	applies[uint64](t)
	applies[float32](t)
	applies[float64](t)
	applies[complex64](t)
	applies[bool](t)
	for a := range Atomics + 2 {
		if Has[string](a) || Has[unsafe.Pointer](a) || Has[[2]int](a) || a >= Atomics && Has[int](a) {
			t.Errorf("there is an operator %d of other elements", a)
		}
	}
}

func applies[T comparable](t *testing.T) {
	kind := AtomicKind[T]()
	samples := Samples(kind)
	var x, y []T
	for _, a := range samples {
		for _, b := range samples {
			x, y = append(x, *(*T)(unsafe.Pointer(&a))), append(y, *(*T)(unsafe.Pointer(&b)))
		}
	}
	for a := range Atomics {
		f := FetcherOf(a, kind)
		if (f != nil) != Has[T](a) {
			t.Errorf("%v of %v: a Fetcher %v, Has %v", a, kind, f != nil, Has[T](a))
		}
		if f == nil {
			continue
		}
		got, want := slices.Clone(x), slices.Clone(x)
		Apply(a, got, y)
		for i := range want {
			var operand uint64
			*(*T)(unsafe.Pointer(&operand)) = y[i]
			f(unsafe.Pointer(&want[i]), operand)
			if got[i] != want[i] && (got[i] == got[i] || want[i] == want[i]) { // NaN is NaN
				t.Errorf("%v of %v and %v: %v, by a step %v", a, x[i], y[i], got[i], want[i])
			}
		}
	}
}
