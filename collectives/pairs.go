package collectives

import "math/bits"

// byPairs is an order in which the contributions of all ranks are combined. It has a name of its own since results of
// operators that are associative but for rounding depend on it. Of the 2 × rest lowest ranks (see fold) each even one is
// combined with the rank above it. That makes pof2 operands, in the order of ranks. Of these each even one is combined
// with the next, each pair with the next pair, and so on.
//
// Recursive halving and doubling combine in this order, and so do the binomial tree, and executors on boards. An
// algorithm that does not has the need OwnOrder.

// Pair is what a rank's contribution is to an executor that takes the contributions from the last rank to the first and
// keeps sums on a stack. Upper: it becomes the last sum on the stack; else it is combined into the last sum, as the lower
// operand. After it each of so many times the last sum is combined into the one before it, as the lower operand, and
// dropped. In the end there is one sum.
type Pair struct {
	Upper  bool
	Closes int
}

// Pairs returns the pairs of all ranks, and the greatest number of sums at one time.
func Pairs(ranks int) (pairs []Pair, sums int) {
	f := (&team{size: ranks}).fold()
	pairs = make([]Pair, ranks)
	open := 0
	for number := f.pof2 - 1; number >= 0; number-- {
		rank, closes := f.member(number), bits.TrailingZeros(uint(f.pof2-number))
		if number < f.rest { // two ranks
			pairs[rank].Upper = true
			rank--
			open++
			sums = max(sums, open)
		} else if pairs[rank].Upper = closes == 0; closes == 0 {
			open++
			sums = max(sums, open)
		} else {
			closes-- // into the last sum
		}
		pairs[rank].Closes = closes
		open -= closes
	}
	return pairs, sums
}
