// Package reduce combines slices element by element: the operators of reductions at the speed of memory.
//
// Each function sets dst[i] = a[i] ∘ b[i] for all i < len(dst). a and b are at least as long as dst. dst may be a or b,
// but may not overlap them otherwise. Integers wrap around.
//
// Min and Max are those of Go's built-in functions: a NaN on either side gives a NaN, and −0 is less than +0. Which of
// the NaNs a sum, product, minimum or maximum gives is not defined; everything else is the same on every machine, bit
// for bit, but for a product of complex numbers: its two halves are rounded once or twice, as the compiler decides.
//
// Where the CPU has AVX2 (GODEBUG=cpu.avx2=off says that it has not), the loops for most types are those of
// kernels_amd64.s. The loops in Go do the rest, and are what the tests compare with.
//
//	Owns:     the operators' loops
//	May call: golang.org/x/sys/cpu
//	Never:    converts, allocates, knows where the slices come from
package reduce
