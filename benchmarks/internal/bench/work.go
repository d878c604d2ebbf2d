package bench

import "time"

// field and sink are what the computation works on; sink also keeps the compiler from leaving it out.
var (
	field [512]uint64
	sink  uint64 = 1 // of zeros all products are zero
)

// Work does so many steps of arithmetic on private memory. A processor that does something else meanwhile makes it
// longer, which it does not with Compute.
func Work(steps int) {
	x := sink
	for i := range steps {
		f := &field[i%len(field)]
		x = x*6364136223846793005 + *f
		*f = x >> 33
	}
	sink = x
}

// Working is the mean time of n computations in nanoseconds.
func Working(steps, n int) float64 {
	start := time.Now()
	for range n {
		Work(steps)
	}
	return float64(time.Since(start)) / float64(n)
}

// StepsFor is how many steps take so many nanoseconds: doubled until the clock sees them well, then in proportion.
func StepsFor(ns float64) int {
	steps := 1024
	for Working(steps, 1) < ns/2 {
		steps *= 2
	}
	return int(float64(steps)*ns/Working(steps, 5)) + 1
}

// Hidden is what part of something that takes pure is hidden by a computation that takes compute, if both together take
// total.
func Hidden(pure, compute, total float64) float64 {
	return max(0, min(1, 1-(total-compute)/pure))
}
