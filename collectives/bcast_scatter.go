package collectives

// Van de Geijn: the elements are scattered down a binomial tree, a part to each rank, and then all gather all parts.
// Each rank sends and receives about twice the elements, however many ranks there are. The parts are gathered around a
// ring.
func bcastScatterRing(b *Builder, p *Params) {
	v := scatterParts(b, p)
	b.partsRing(v, Ref{Space: Out}, p.Count)
}

// As scatter_ring; the parts are gathered by recursive doubling, in log2 n rounds.
func bcastScatterDoubling(b *Builder, p *Params) {
	v := scatterParts(b, p)
	b.partsDoubling(v, Ref{Space: Out}, p.Count)
}

// scatterParts leaves at each rank the part that has its number in the tree.
func scatterParts(b *Builder, p *Params) tree {
	v := tree{t: team{rank: p.Rank, size: p.Size}, root: p.Root, radix: 2}
	span := func(at int) (Ref, int64) {
		low := part(p.Count, p.Size, at)
		return Ref{Space: Out, Off: low}, part(p.Count, p.Size, at+v.subtree(at)) - low
	}
	if parent := v.parent(); parent >= 0 {
		buf, n := span(v.at())
		b.recv(parent, buf, n)
	}
	b.next()
	v.children(func(child, at int) {
		buf, n := span(at)
		b.send(child, buf, n)
	})
	b.next()
	return v
}

// partsRing gathers the parts of count elements at buf; a member has that with its number in the tree.
func (b *Builder) partsRing(v tree, buf Ref, count int64) {
	at, n := v.at(), v.t.size
	up, down := v.t.peer(v.member((at+1)%n)), v.t.peer(v.member((at-1+n)%n))
	for i := range n - 1 {
		mine, its := (at-i+n)%n, (at-i-1+n)%n
		low, lowIts := part(count, n, mine), part(count, n, its)
		b.recv(down, buf.At(lowIts), part(count, n, its+1)-lowIts)
		b.send(up, buf.At(low), part(count, n, mine+1)-low)
		b.next()
	}
}

// partsDoubling does the same with a power of two of members.
func (b *Builder) partsDoubling(v tree, buf Ref, count int64) {
	at, n := v.at(), v.t.size
	for w := 1; w < n; w *= 2 {
		mine, its := at&^(w-1), at&^(w-1)^w
		peer := v.t.peer(v.member(at ^ w))
		low, lowIts := part(count, n, mine), part(count, n, its)
		b.recv(peer, buf.At(lowIts), part(count, n, its+w)-lowIts)
		b.send(peer, buf.At(low), part(count, n, mine+w)-low)
		b.next()
	}
}
