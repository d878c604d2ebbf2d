package collectives

// Recursive halving, in log2 n rounds, of parts of any length. Where the operator commutes the farthest ranks exchange
// first, so that each ends with its own part. Where it does not, neighbours exchange first, and each part goes to its
// rank in one more round.
func reduceScatterHalving(b *Builder, p *Params) {
	t := p.everyone()
	l, f := p.parts(), t.fold()
	total := l.start(p.Size)
	// start is where the part of a number among the pof2 begins: that of the rank it was given is before its own.
	start := func(number int) int64 {
		if number < f.rest {
			return l.start(2 * number)
		}
		return l.start(number + f.rest)
	}
	mine := l.start(p.Rank)
	n := l.start(p.Rank+1) - mine
	source, out := p.source(), Ref{Space: Out}
	if p.Size == 1 {
		b.copy(out, source, n)
		return
	}
	if f.rank < 0 {
		b.send(p.Rank+1, source, total)
		b.next()
		b.recv(p.Rank+1, out, n)
		b.next()
		return
	}
	a := b.accumulate(source, b.tmp(total), total)
	b.foldIn(&t, &f, &a, total)
	has := f.rank
	if p.Commutative {
		b.halveFar(&f, start, &a)
	} else {
		has = b.halveNear(&f, start, &a)
	}
	if has != f.rank {
		low, lowMine := start(has), start(f.rank)
		b.recv(f.member(has), a.apart().At(lowMine), start(f.rank+1)-lowMine)
		b.send(f.member(has), a.cur.At(low), start(has+1)-low)
		b.next()
		a.cur = a.slot
	}
	if p.Rank < 2*f.rest {
		low := l.start(p.Rank - 1)
		b.send(p.Rank-1, a.cur.At(low), mine-low)
	}
	b.copy(out, a.cur.At(mine), n)
}

// halveFar ends with the part of this rank's number in a.cur.
func (b *Builder) halveFar(f *fold, start func(int) int64, a *accumulator) {
	for w := f.pof2 / 2; w > 0; w /= 2 {
		other := f.rank ^ w
		base, baseIts := f.rank&^(w-1), other&^(w-1)
		low, high := start(base), start(base+w)
		lowIts, highIts := start(baseIts), start(baseIts+w)
		b.recv(f.member(other), a.next(other < f.rank).At(low), high-low)
		b.send(f.member(other), a.cur.At(lowIts), highIts-lowIts)
		a.with(f.rank, other, low, high-low)
		b.next()
	}
}

// halveNear ends with a part in a.cur and returns its number: this rank's with its bits reversed. All ranks whose bits
// below w are equal have the same parts in that round.
func (b *Builder) halveNear(f *fold, start func(int) int64, a *accumulator) int {
	base := 0
	for w := 1; w < f.pof2; w *= 2 {
		half := f.pof2 / (2 * w)
		other := f.rank ^ w
		keep, give := base, base+half
		if f.rank&w != 0 {
			keep, give = give, keep
		}
		low, high := start(keep), start(keep+half)
		lowIts, highIts := start(give), start(give+half)
		b.recv(f.member(other), a.next(other < f.rank).At(low), high-low)
		b.send(f.member(other), a.cur.At(lowIts), highIts-lowIts)
		a.with(f.rank, other, low, high-low)
		b.next()
		base = keep
	}
	return base
}
