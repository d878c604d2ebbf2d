package consensus

// The tree is binomial: without deaths, rank r reports to r without its lowest bit. A rank whose parent has died
// reports to the nearest ancestor that lives. Without one it reports to the lowest rank that lives, which decides.
// So a death changes the tree only for the ranks next to the dead one, and ranks that know of the same deaths have the
// same tree.

// parent returns the rank to which a living rank reports if these ranks are dead; none: it decides.
func (m *Machine) parent(rank int, dead Set) int {
	for r := rank; r != 0; {
		if r &= r - 1; !dead.Has(r) {
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
	for step := 1; rank+step < m.n && rank&step == 0; step *= 2 {
		if child := rank + step; dead.Has(child) {
			m.below(child, dead, yield)
		} else {
			yield(child)
		}
	}
}
