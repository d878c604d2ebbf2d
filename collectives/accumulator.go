package collectives

// accumulator combines operands as they come, in the order of ranks. What has been combined so far is at cur. The next
// operand is received where next says: the first one where the result is to be, so that it is combined there with the
// caller's and no third memory is touched. Operators that do not commute are applied in place into their upper operand
// only, so cur and spare change places where the operand is the upper one.
type accumulator struct {
	b        *Builder
	cur      Ref   // of what is combined so far
	home     Ref   // where the result is to be
	slot     Ref   // what next has said
	spare    Ref   // room for n elements, if taken
	n        int64 // elements of all
	taken    bool
	borrowed bool // cur may not be written: it is the caller's
}

// accumulate begins with the n elements at source; the result will be at home. If source is home it may be written.
func (b *Builder) accumulate(source, home Ref, n int64) accumulator {
	return accumulator{b: b, cur: source, home: home, n: n, borrowed: source != home}
}

// next is where the next operand is to be received; lower: it is of lower ranks.
func (a *accumulator) next(lower bool) Ref {
	if a.borrowed && (a.b.p.Commutative || !lower) {
		a.slot = a.home
		return a.slot
	}
	return a.apart()
}

// apart is next, and not where the result is to be.
func (a *accumulator) apart() Ref {
	if !a.taken {
		a.spare, a.taken = a.b.tmp(a.n), true
	}
	a.slot = a.spare
	return a.slot
}

// lower combines n elements after off with those of lower ranks, which are where next has said.
func (a *accumulator) lower(off, n int64) {
	dst := a.cur
	if a.borrowed {
		dst = a.home
	}
	a.b.combine(dst.At(off), a.slot.At(off), a.cur.At(off), n)
	a.cur, a.borrowed = dst, false
}

// upper combines n elements after off with those of higher ranks, which are where next has said.
func (a *accumulator) upper(off, n int64) {
	dst := a.cur
	switch {
	case a.borrowed:
		dst = a.home
	case !a.b.p.Commutative:
		dst, a.spare = a.slot, a.cur
	}
	a.b.combine(dst.At(off), a.cur.At(off), a.slot.At(off), n)
	a.cur, a.borrowed = dst, false
}

// with combines with the operand of the member whose number is other; mine is this one's.
func (a *accumulator) with(mine, other int, off, n int64) {
	if other < mine {
		a.lower(off, n)
		return
	}
	a.upper(off, n)
}

// finish moves n elements after off home, unless they are there.
func (a *accumulator) finish(off, n int64) {
	a.b.copy(a.home.At(off), a.cur.At(off), n)
	a.cur, a.borrowed = a.home, false
}
