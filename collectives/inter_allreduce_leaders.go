package collectives

// In each group the vectors go up a binomial tree to its first rank. These two exchange what they have, and the other
// group's result goes down the tree.
func interAllreduce(b *Builder, p *Params) {
	t, other := p.group()
	own := b.combined(&t, p.Count)
	if t.rank == 0 {
		b.recv(other, Ref{Space: Out}, p.Count)
		b.send(other, own, p.Count)
		b.next()
	}
	b.treeDown(&t, 0, 2, Ref{Space: Out}, p.Count)
}

// combined brings what all members of a team have in In to the first one, combined in their order. It returns where it
// is there.
func (b *Builder) combined(t *team, n int64) Ref {
	var home Ref
	switch {
	case t.size == 1:
		home = Ref{Space: In}
	case t.rank == 0:
		home = b.tmp(n)
	default:
		home = b.leafless(t, 0, 2, n)
	}
	b.treeUp(t, 0, 2, Ref{Space: In}, home, n)
	return home
}
