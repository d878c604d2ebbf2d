package collectives

// In each group the vectors go up a binomial tree to its first rank. These two exchange what they have, and the other
// group's result goes down the tree.
func interAllreduce(b *Builder, p *Params) {
	t, other := p.group()
	var home Ref
	switch {
	case t.size == 1:
		home = Ref{Space: In}
	case t.rank == 0:
		home = b.tmp(p.Count)
	default:
		home = b.leafless(&t, 0, 2, p.Count)
	}
	b.treeUp(&t, 0, 2, Ref{Space: In}, home, p.Count)
	if t.rank == 0 {
		b.recv(other, Ref{Space: Out}, p.Count)
		b.send(other, home, p.Count)
		b.next()
	}
	b.treeDown(&t, 0, 2, Ref{Space: Out}, p.Count)
}
