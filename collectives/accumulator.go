package collectives

// accumulator combines operands as they come, in the order of ranks. What has been combined so far is at cur. The next
// operand is received at slot. Operators that do not commute are applied in place into their upper operand only, so cur
// and slot change places where the operand is the upper one.
type accumulator struct {
	b           *Builder
	commutative bool
	cur         Ref  // of what is combined so far
	home        Ref  // where the result is to be
	slot        Ref  // where the next operand is received
	borrowed    bool // cur may not be written: it is the caller's
}

// accumulate begins with what is at source; the result will be at home. slot has room for an operand and overlaps
// neither. If source is home it may be written.
func (b *Builder) accumulate(source, home, slot Ref) accumulator {
	return accumulator{b: b, commutative: b.p.Commutative, cur: source, home: home, slot: slot, borrowed: source != home}
}

// lower combines n elements after off with those of lower ranks, which are at slot.
func (a *accumulator) lower(off, n int64) {
	dst := a.cur
	if a.borrowed {
		dst = a.home
	}
	a.b.combine(dst.At(off), a.slot.At(off), a.cur.At(off), n)
	a.cur, a.borrowed = dst, false
}

// upper combines n elements after off with those of higher ranks, which are at slot.
func (a *accumulator) upper(off, n int64) {
	dst := a.cur
	switch {
	case a.borrowed:
		dst = a.home
	case !a.commutative:
		dst = a.slot
	}
	a.b.combine(dst.At(off), a.cur.At(off), a.slot.At(off), n)
	if dst == a.slot {
		a.slot = a.cur
	}
	a.cur, a.borrowed = dst, false
}

// with combines with an operand at slot from the member whose number is other; mine is this one's.
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
