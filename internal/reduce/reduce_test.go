package reduce

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"reflect"
	"testing"
	"unsafe"

	"golang.org/x/sys/cpu"
)

type (
	celsius float64
	flags   uint16
	id      int
	yes     bool
	phase   complex64
)

// TestModel compares every function on every kind of element with one line of Go for one element, with the kernels and
// without them: lengths around the kernels' steps, any alignment, dst apart, dst = a and dst = b. Nothing outside dst
// is written.
func TestModel(t *testing.T) {
	t.Run("kernels", testModel)
	t.Run("Go", func(t *testing.T) {
		defer func(all table) { kernels = all }(kernels)
		kernels = table{}
		testModel(t)
	})
}

func testModel(t *testing.T) {
	ints[int8](t)
	ints[int16](t)
	ints[int32](t)
	ints[int64](t)
	ints[int](t)
	ints[id](t)
	ints[uint8](t)
	ints[uint16](t)
	ints[flags](t)
	ints[uint32](t)
	ints[uint64](t)
	ints[uint](t)
	ints[uintptr](t)
	floats[float32](t)
	floats[float64](t)
	floats[celsius](t)
	complexes(t, func(r, i float64) complex64 { return complex64(complex(r, i)) })
	complexes(t, func(r, i float64) phase { return phase(complex(r, i)) })
	complexes(t, func(r, i float64) complex128 { return complex(r, i) })
	bools[bool](t)
	bools[yes](t)
}

func ints[T Integer](t *testing.T) {
	any := func(r *rand.Rand) T {
		small := [...]T{0, 1, 2, ^T(0), T(1) << (unsafe.Sizeof(T(0))*8 - 1), ^(T(1) << (unsafe.Sizeof(T(0))*8 - 1))}
		if n := r.IntN(12); n < len(small) {
			return small[n]
		}
		return T(r.Uint64())
	}
	truth := func(ok bool) T {
		if ok {
			return 1
		}
		return 0
	}
	numbers(t, any)
	reals(t, any)
	check(t, "BitAnd", any, BitAnd, func(a, b T) T { return a & b })
	check(t, "BitOr", any, BitOr, func(a, b T) T { return a | b })
	check(t, "BitXor", any, BitXor, func(a, b T) T { return a ^ b })
	check(t, "LogicalAnd", any, LogicalAnd, func(a, b T) T { return truth(a != 0 && b != 0) })
	check(t, "LogicalOr", any, LogicalOr, func(a, b T) T { return truth(a != 0 || b != 0) })
	check(t, "LogicalXor", any, LogicalXor, func(a, b T) T { return truth((a != 0) != (b != 0)) })
}

func floats[T ~float32 | ~float64](t *testing.T) {
	any := func(r *rand.Rand) T { return T(special(r)) }
	numbers(t, any)
	reals(t, any)
}

func special(r *rand.Rand) float64 {
	zero := 0.0
	of := [...]float64{0, -zero, 1, -1, math.NaN(), math.Copysign(math.NaN(), -1), math.Inf(1), math.Inf(-1),
		math.SmallestNonzeroFloat64, math.SmallestNonzeroFloat32, math.MaxFloat64, -math.MaxFloat32,
		math.Copysign(0, -1), math.Float64frombits(0x7ff0_0000_2000_0001)}
	if n := r.IntN(2 * len(of)); n < len(of) {
		return of[n]
	}
	return r.NormFloat64()
}

func numbers[T Number](t *testing.T, any func(*rand.Rand) T) {
	check(t, "Sum", any, Sum, func(a, b T) T { return a + b })
	check(t, "Prod", any, Prod, func(a, b T) T { return a * b })
}

func reals[T Real](t *testing.T, any func(*rand.Rand) T) {
	check(t, "Min", any, Min, func(a, b T) T { return min(a, b) })
	check(t, "Max", any, Max, func(a, b T) T { return max(a, b) })
	loc := func(r *rand.Rand) Loc[T] { return Loc[T]{any(r), r.IntN(3)} }
	// before says by the rules which of the two is taken.
	before := func(less func(a, b T) bool, a, b Loc[T]) Loc[T] {
		nan := func(v T) bool { return v != v }
		switch {
		case nan(a.Value) != nan(b.Value):
			if nan(a.Value) {
				return a
			}
			return b
		case less(a.Value, b.Value):
			return a
		case less(b.Value, a.Value):
			return b
		case a.Index < b.Index:
			return a
		}
		return b
	}
	check(t, "MinLoc", loc, MinLoc, func(a, b Loc[T]) Loc[T] { return before(func(a, b T) bool { return a < b }, a, b) })
	check(t, "MaxLoc", loc, MaxLoc, func(a, b Loc[T]) Loc[T] { return before(func(a, b T) bool { return a > b }, a, b) })
}

func complexes[T ~complex64 | ~complex128](t *testing.T, of func(r, i float64) T) {
	check(t, "Sum", func(r *rand.Rand) T { return of(special(r), special(r)) }, Sum, func(a, b T) T { return a + b })
	// Where nothing is rounded, it does not matter how often.
	whole := func(r *rand.Rand) T { return of(float64(r.IntN(100)-50), float64(r.IntN(100)-50)) }
	check(t, "Prod", whole, Prod, func(a, b T) T { return a * b })
}

func bools[T ~bool](t *testing.T) {
	any := func(r *rand.Rand) T { return r.IntN(2) == 0 }
	check(t, "LogicalAnd", any, LogicalAnd, func(a, b T) T { return a && b })
	check(t, "LogicalOr", any, LogicalOr, func(a, b T) T { return a || b })
	check(t, "LogicalXor", any, LogicalXor, func(a, b T) T { return a != b })
}

func check[T any](t *testing.T, name string, any func(*rand.Rand) T, f func(dst, a, b []T), model func(a, b T) T) {
	t.Helper()
	r := rand.New(rand.NewPCG(1, uint64(len(name))))
	slice := func(n int) []T {
		s := make([]T, n+r.IntN(9))
		for i := range s {
			s[i] = any(r)
		}
		return s[len(s)-n:]
	}
	perBlock := blockLen/int(unsafe.Sizeof(*new(T))) + 1
	for _, n := range []int{0, 1, 2, perBlock - 2, perBlock - 1, perBlock, 2 * perBlock, 5*perBlock + 3, 1000} {
		for form := range 3 {
			const guard = 40
			a, b := slice(n+guard), slice(n+guard)
			dst := [][]T{slice(n + guard), a, b}[form]
			want := bytes.Clone(bits(dst))
			for i := range n {
				copy(want[i*int(unsafe.Sizeof(a[0])):], bits([]T{model(a[i], b[i])}))
			}
			f(dst[:n], a, b)
			for i := range dst {
				size := int(unsafe.Sizeof(a[0]))
				if got, want := bits(dst[i:i+1]), want[i*size:][:size]; !bytes.Equal(got, want) && !bothNaN[T](got, want) {
					t.Fatalf("%s of %d %T, element %d, form %d: %x, want %x", name, n, dst, i, form, got, want)
				}
			}
		}
	}
}

func bits[T any](s []T) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(s))), len(s)*int(unsafe.Sizeof(*new(T))))
}

// bothNaN reports whether the bytes are Ts that print alike: which NaN it is does not show.
func bothNaN[T any](a, b []byte) bool {
	x, y := *(*T)(unsafe.Pointer(&a[0])), *(*T)(unsafe.Pointer(&b[0]))
	return fmt.Sprint(x) == fmt.Sprint(y) && bytes.ContainsAny([]byte(fmt.Sprint(x)), "N")
}

// TestZeros checks the rules of Min and Max, one by one.
func TestZeros(t *testing.T) {
	neg, nan := math.Copysign(0, -1), math.NaN()
	for _, c := range []struct{ a, b, min, max float64 }{
		{0, neg, neg, 0}, {neg, 0, neg, 0}, {neg, neg, neg, neg}, {0, 0, 0, 0},
		{1, nan, nan, nan}, {nan, 1, nan, nan}, {nan, nan, nan, nan}, {math.Inf(-1), nan, nan, nan},
	} {
		a, b, dst := make([]float64, 17), make([]float64, 17), make([]float64, 17)
		for i := range a {
			a[i], b[i] = c.a, c.b
		}
		for _, f := range []struct {
			name string
			run  func(dst, a, b []float64)
			want float64
		}{{"Min", Min[float64], c.min}, {"Max", Max[float64], c.max}} {
			f.run(dst, a, b)
			for i, got := range dst { // 0–15: of the kernel
				same := math.Float64bits(got) == math.Float64bits(f.want) || math.IsNaN(got) && math.IsNaN(f.want)
				if !same {
					t.Errorf("%s(%v, %v) is %v (sign %v) at %d, want %v", f.name, c.a, c.b, got, math.Signbit(got), i, f.want)
				}
			}
		}
	}
}

// TestKernels checks that on a CPU with AVX2 the types that programs sum have a kernel, and with GODEBUG none has.
func TestKernels(t *testing.T) {
	if os.Getenv("REDUCE_WITHOUT") != "" {
		for op, kinds := range kernels {
			for kind, k := range kinds {
				if k != nil {
					t.Fatalf("there is a kernel for %d of %v, although GODEBUG says that there is no AVX2", op, reflect.Kind(kind))
				}
			}
		}
		return
	}
	if !cpu.X86.HasAVX2 {
		return // there are no other kernels
	}
	for _, k := range []reflect.Kind{reflect.Float32, reflect.Float64, reflect.Int32, reflect.Int64, reflect.Complex128} {
		if kernels[opSum][k] == nil {
			t.Errorf("there is no kernel for the sum of %v", k)
		}
	}
	for _, off := range []string{"cpu.all=off", "cpu.avx2=off"} {
		cmd := exec.Command(os.Args[0], "-test.run=^(TestKernels|TestZeros)$")
		cmd.Env = append(os.Environ(), "REDUCE_WITHOUT=1", "GODEBUG="+off)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("GODEBUG=%s: %v\n%s", off, err, out)
		}
	}
}

// TestKinds checks that every kind that the kernels' table may be asked for is the one with the size said.
func TestKinds(t *testing.T) {
	for _, c := range []struct{ got, want reflect.Kind }{
		{kindOf[id](), kindOf[int]()}, {kindOf[uintptr](), kindOf[uint]()}, {kindOf[flags](), reflect.Uint16},
		{kindOf[celsius](), reflect.Float64}, {kindOf[phase](), reflect.Complex64},
	} {
		if c.got != c.want {
			t.Errorf("%v, want %v", c.got, c.want)
		}
	}
	if unsafe.Sizeof(0) == 8 && (kindOf[int]() != reflect.Int64 || kindOf[uint]() != reflect.Uint64) {
		t.Errorf("int is %v, uint is %v", kindOf[int](), kindOf[uint]())
	}
}

// BenchmarkSum by the bytes of one operand, compared with a copy of the same bytes. "into" has a destination of its
// own.
func BenchmarkSum(b *testing.B) {
	for _, size := range []int{4 << 10, 32 << 10, 256 << 10, 1 << 20, 16 << 20} {
		dst, x, y := make([]float64, size/8), make([]float64, size/8), make([]float64, size/8)
		for _, f := range []struct {
			name string
			run  func()
		}{
			{"copy", func() { copy(dst, x) }},
			{"sum", func() { Sum(dst, x, dst) }},
			{"into", func() { Sum(dst, x, y) }},
			{"copy+sum", func() { // what "into" would be without a third operand
				const n = 512
				for i := 0; i < len(dst); i += n {
					copy(dst[i:i+n], y[i:i+n])
					Sum(dst[i:i+n], x[i:i+n], dst[i:i+n])
				}
			}},
		} {
			b.Run(fmt.Sprintf("%d/%s", size, f.name), func(b *testing.B) {
				b.SetBytes(int64(size))
				for b.Loop() {
					f.run()
				}
			})
		}
	}
}

// BenchmarkOps of 256 KiB.
func BenchmarkOps(b *testing.B) {
	bench(b, "Prod/float64", Prod[float64])
	bench(b, "Prod/int64", Prod[int64])
	bench(b, "Prod/complex128", Prod[complex128])
	bench(b, "Min/float64", Min[float64])
	bench(b, "Max/float32", Max[float32])
	bench(b, "Min/int64", Min[int64])
	bench(b, "BitAnd/uint8", BitAnd[uint8])
	bench(b, "LogicalAnd/bool", LogicalAnd[bool])
	bench(b, "MaxLoc/float64", MaxLoc[float64])
}

func bench[T any](b *testing.B, name string, f func(dst, a, b []T)) {
	size := 256 << 10
	dst, x := make([]T, size/int(unsafe.Sizeof(*new(T)))), make([]T, size/int(unsafe.Sizeof(*new(T))))
	b.Run(name, func(b *testing.B) {
		b.SetBytes(int64(size))
		for b.Loop() {
			f(dst, x, dst)
		}
	})
}
