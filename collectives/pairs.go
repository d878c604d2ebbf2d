package collectives

// byPairs is an order in which the contributions of all ranks are combined. It has a name of its own since results of
// operators that are associative but for rounding depend on it. Of the 2 × rest lowest ranks (see fold) each even one is
// combined with the rank above it. That makes pof2 operands, in the order of ranks. Of these each even one is combined
// with the next, each pair with the next pair, and so on.
//
// Recursive halving and doubling combine in this order, and so do the binomial tree, and executors on boards. An
// algorithm that does not has the need OwnOrder.

// Pair is a step of an executor that combines by pairs: it takes a rank's contribution into a buffer, and then merges
// buffers.
type Pair struct {
	Rank   int
	To     int // the buffer; Own: it is this rank's contribution, and stays where it is
	Merges []Merge
}

// Merge combines buffer Lower into buffer Upper, as the lower operand. Lower is free then.
type Merge struct{ Upper, Lower int }

// Own is in the place of a buffer if a rank's own contribution is only read.
const Own = -1

// Pairs returns the steps for so many ranks that begin with the contribution of one, and how many buffers they use; the
// result is in buffer 0. They go on with the neighbour of that rank, then their neighbours. If each rank begins with
// itself no contribution is taken by all at one time. To begin with another rank is possible with the last one.
func Pairs(rank, ranks int) (steps []Pair, buffers int) {
	p := pairing{fold: (&team{size: ranks}).fold(), last: ranks - 1, taken: []bool{true}}
	if number := p.number(rank); number >= 0 {
		p.me = 2*number + 1
	} else {
		p.me = 2 * p.number(rank+1)
	}
	p.sum(0, 2*p.pof2)
	return p.steps, len(p.taken)
}

// pairing makes the steps of a rank.
type pairing struct {
	fold
	me    int // this rank's leaf; there are two of each number: a rank that is folded, or none, and the rank above it
	last  int // the last rank: it is never a lower operand, so its buffer has the result
	steps []Pair
	taken []bool // buffers; the result's always
}

// nothing is the sum of leaves that no rank has.
const nothing = -2

// sum appends the steps for n leaves, a power of two, from one on, and returns the buffer of their sum.
func (p *pairing) sum(from, n int) (buffer int) {
	if n == 1 {
		return p.take(from)
	}
	half := n / 2
	low, high := nothing, nothing
	if p.me&half == 0 {
		low = p.sum(from, half)
		high = p.sum(from+half, half)
	} else {
		high = p.sum(from+half, half)
		low = p.sum(from, half)
	}
	if low == nothing || high == nothing {
		return max(low, high)
	}
	if high == Own { // from the first step on, so the buffer is one that none of the steps since then has used
		high = len(p.taken)
		p.taken = append(p.taken, true)
		p.steps[0].To = high
	}
	step := &p.steps[len(p.steps)-1]
	if step.Merges = append(step.Merges, Merge{high, low}); low != Own {
		p.taken[low] = false
	}
	return high
}

// take appends the step for a leaf.
func (p *pairing) take(leaf int) (buffer int) {
	number := leaf / 2
	rank := p.member(number)
	if leaf%2 == 0 {
		if number >= p.rest {
			return nothing
		}
		rank--
	}
	buffer = Own
	if leaf != p.me || rank == p.last {
		buffer = p.free(rank)
	}
	p.steps = append(p.steps, Pair{Rank: rank, To: buffer})
	return buffer
}

// free takes a buffer for a rank's contribution.
func (p *pairing) free(rank int) int {
	if rank == p.last {
		return 0
	}
	for i, taken := range p.taken {
		if !taken {
			p.taken[i] = true
			return i
		}
	}
	p.taken = append(p.taken, true)
	return len(p.taken) - 1
}
