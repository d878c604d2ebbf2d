package consensus

import "math/bits"

// Without deaths, rank r reports to r without its lowest digit, to the base 4, that is not 0. A rank whose parent has
// died reports to the nearest ancestor that lives. Without one it reports to the lowest rank that lives, which decides.
// So a death changes the tree only for the ranks next to the dead one, and ranks that know of the same deaths have the
// same tree.

// digitBits is the bits of a digit. On a host with fewer CPUs than ranks each level costs a turn of all ranks, and a
// binomial tree has twice as many levels.
const digitBits = 2

// parent returns the rank to which a living rank reports if these ranks are dead; none: it decides.
func (m *Machine) parent(rank int, dead Set) int {
	digit := 1<<m.digit - 1
	for r := rank; r != 0; {
		zeros := uint(bits.TrailingZeros(uint(r)))
		if r &^= digit << (zeros - zeros%m.digit); !dead.Has(r) {
			return r
		}
	}
	root := 0
	for dead.Has(root) {
		root++
	}
	if root == rank {
		return none
	}
	return root
}

// none is no rank.
const none = -1

// children calls yield with the ranks that report to a living rank if these ranks are dead.
func (m *Machine) children(rank int, dead Set, yield func(child int)) {
	m.below(rank, dead, yield)
	if rank != 0 && m.parent(rank, dead) == none { // it stands in for rank 0
		m.below(0, dead, func(child int) {
			if child != rank {
				yield(child)
			}
		})
	}
}

// below calls yield with the living ranks that are nearest below a rank.
func (m *Machine) below(rank int, dead Set, yield func(child int)) {
	digit := 1<<m.digit - 1
	for step := 1; rank+step < m.n && rank&(digit*step) == 0; step <<= m.digit {
		for child := rank + step; child <= rank+digit*step && child < m.n; child += step {
			if dead.Has(child) {
				m.below(child, dead, yield)
			} else {
				yield(child)
			}
		}
	}
}
