package collectives

// Each rank receives its part from each other, in an order that keeps that of the ranks: first the lower ones, downward
// from its own, then the higher ones, downward from the last. Parts of any length, n-1 messages.
func reduceScatterPairwise(b *Builder, p *Params) {
	l := p.parts()
	source := p.source()
	low := l.start(p.Rank)
	n := l.length(p.Rank)
	mine := source.At(low)
	if p.Size == 1 {
		b.copy(Ref{Space: Out}, mine, n)
		return
	}
	in, below, above := b.tmp(n), b.tmp(n), b.tmp(n) // below: this rank and the lower ones
	cur := mine
	start := low
	for i := 1; i < p.Size; i++ {
		from, to := (p.Rank-i+p.Size)%p.Size, (p.Rank+i)%p.Size
		if start += l.length((to - 1 + p.Size) % p.Size); to == 0 {
			start = 0
		}
		first := from > p.Rank && (from == p.Size-1) // of those above
		dst := in
		if first {
			dst = above
		}
		b.recv(from, dst, n)
		b.send(to, source.At(start), l.length(to))
		switch {
		case from < p.Rank:
			b.combine(below, in, cur, n)
			cur = below
		case !first:
			b.combine(above, in, above, n)
		}
		b.next()
	}
	if p.Rank < p.Size-1 {
		b.combine(above, cur, above, n)
		cur = above
	}
	b.copy(Ref{Space: Out}, cur, n)
}
