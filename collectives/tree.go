package collectives

// tree is a k-nomial tree over a team: with members renumbered so that root is 0, a member's parent has the lowest
// digit that is not 0, in base radix, made 0. A subtree is a range of these numbers.
type tree struct {
	t     team
	root  int
	radix int
}

// at is this member's number in the tree.
func (v *tree) at() int { return (v.t.rank - v.root + v.t.size) % v.t.size }

// member is the inverse of at.
func (v *tree) member(at int) int { return (at + v.root) % v.t.size }

// reach is the weight of the lowest digit of at that is not 0: the size of its subtree in a full tree.
func (v *tree) reach(at int) int {
	w := 1
	for w < v.t.size && at/w%v.radix == 0 {
		w *= v.radix
	}
	return w
}

// parent is the member above this one; -1: it is the root.
func (v *tree) parent() int {
	at := v.at()
	if at == 0 {
		return -1
	}
	w := v.reach(at)
	return v.member(at - at/w%v.radix*w)
}

// subtree is the number of members in the subtree at a number.
func (v *tree) subtree(at int) int {
	return min(v.reach(at), v.t.size-at)
}

// children calls f for each child, those with the largest subtrees first, with its member and its number in the tree.
func (v *tree) children(f func(member, at int)) {
	at := v.at()
	for w := v.reach(at) / v.radix; w > 0; w /= v.radix {
		for d := 1; d < v.radix && at+d*w < v.t.size; d++ {
			f(v.member(at+d*w), at+d*w)
		}
	}
}

// childrenUp calls f as children does, in ascending order of numbers.
func (v *tree) childrenUp(f func(member, at int)) {
	at := v.at()
	for w := 1; w < v.reach(at); w *= v.radix {
		for d := 1; d < v.radix && at+d*w < v.t.size; d++ {
			f(v.member(at+d*w), at+d*w)
		}
	}
}
