// Package reduce combines slices element by element: the operators of reductions at the speed of memory.
//
// Each function sets dst[i] = a[i] ∘ b[i] for all i < len(dst). a and b are at least as long as dst. dst may be a or b,
// but may not overlap them otherwise. Integers wrap around.
//
// Min and Max follow Go's built-in functions: a NaN on either side gives a NaN, and −0 is less than +0. If an operation
// has several NaNs to choose from, the result may be any of them. All other results are the same on every machine, bit
// for bit, except a product of complex numbers: the compiler decides whether it rounds each half once or twice.
//
// On a CPU with AVX2 (GODEBUG=cpu.avx2=off disables it) kernels_amd64.s has the loops for most types. The loops in Go
// do the rest, and the tests compare both.
//
//	Owns:     the operators' loops
//	May call: golang.org/x/sys/cpu
//	Never:    convert, allocate, know where the slices come from
package reduce
