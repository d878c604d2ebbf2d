package mpi

import (
	"fmt"
	"slices"

	"github.com/gorun-mpi/mpi/internal/mpierr"
)

// Dims cuts n ranks into a grid; §8.5.2 (MPI_Dims_create). dims has one entry for each dimension. Dims fills in the
// entries that are 0, so that the product is n and the filled entries are as equal as possible, larger ones first. It
// communicates with no rank. A negative entry, or entries that do not divide n, are ErrDims.
func Dims(n int, dims []int) error {
	rest, free := n, []int{}
	for i, d := range dims {
		switch {
		case n < 1 || d < 0:
			return mpierr.New("Dims", ErrDims, "%d ranks and the dimensions %v were given; ranks are 1 or more, "+
				"dimensions positive, or 0 where they are asked for", n, dims)
		case d == 0:
			free = append(free, i)
		case rest%d != 0:
			return mpierr.New("Dims", ErrDims, "%d ranks cannot be cut into the dimensions %v; those given must "+
				"divide it", n, dims)
		default:
			rest /= d
		}
	}
	if len(free) == 0 {
		if rest != 1 {
			return mpierr.New("Dims", ErrDims, "the dimensions %v hold %d ranks, not %d", dims, n/rest, n)
		}
		return nil
	}
	for k, d := range balanced(rest, len(free)) {
		dims[free[k]] = d
	}
	return nil
}

// balanced cuts n into k factors, the largest first, whose largest and smallest differ as little as possible.
func balanced(n, k int) []int {
	s := factoring{divisors: divisorsOf(n)}
	s.search(n, k, n, nil)
	return s.best
}

// divisorsOf are the divisors of n, the largest first.
func divisorsOf(n int) (all []int) {
	for d := 1; d*d <= n; d++ {
		if n%d == 0 {
			all = append(all, d)
			if d*d != n {
				all = append(all, n/d)
			}
		}
	}
	slices.Sort(all)
	slices.Reverse(all)
	return all
}

type factoring struct {
	divisors []int
	best     []int
}

// search extends chosen, which are in falling order, by k factors of n that are at most as large as limit. What is left
// out cannot be better: the smallest factor is at most the k-th root of n.
func (s *factoring) search(n, k, limit int, chosen []int) {
	if k == 0 {
		if n == 1 && (s.best == nil || spread(chosen) < spread(s.best)) {
			s.best = slices.Clone(chosen)
		}
		return
	}
	for _, d := range s.divisors {
		if d > limit || n%d != 0 {
			continue
		}
		if power(d, k) < n {
			return // all that follow are smaller, and their product too
		}
		first := d
		if len(chosen) > 0 {
			first = chosen[0]
		}
		if k > 1 && s.best != nil && first-root(n/d, k-1) >= spread(s.best) {
			continue
		}
		s.search(n/d, k-1, d, append(chosen, d))
	}
}

func spread(dims []int) int { return dims[0] - dims[len(dims)-1] }

// power is d to the k, or more than any number of ranks.
func power(d, k int) int {
	p := 1
	for range k {
		if p > 1<<62/d {
			return 1 << 62
		}
		p *= d
	}
	return p
}

// root is the largest r whose k-th power is at most n.
func root(n, k int) int {
	if k <= 1 {
		return n
	}
	r := 1
	for power(r+1, k) <= n {
		r++
	}
	return r
}

// gridArgs reports why dims cannot be a grid of ranks in a communicator of size.
func gridArgs(op string, dims []int, periodic []bool, size int) *Error {
	if len(dims) != len(periodic) {
		return mpierr.New(op, ErrDims, "%d dimensions and %d periods were given; there is one for each", len(dims),
			len(periodic))
	}
	n := 1
	for _, d := range dims {
		if d < 1 || n > size/d {
			return mpierr.New(op, ErrDims, "the dimensions are %v; they are positive, and hold at most %s", dims,
				ranksText(size))
		}
		n *= d
	}
	return nil
}

func ranksText(n int) string {
	return fmt.Sprintf("the %d ranks of the communicator", n)
}
