package collectives

// The vectors go up a binomial tree to rank 0, and the result down again: 2(n-1) messages in all, where recursive
// doubling has n log2 n. That is less work where ranks share processors.
func allreduceTree(b *Builder, p *Params) {
	t := p.everyone()
	home := Ref{Space: Out}
	b.treeUp(&t, 0, 2, p.source(), home, p.Count)
	b.treeDown(&t, 0, 2, home, p.Count)
}
