package collectives

// The vectors go up a binomial tree to the first rank, which sends the result to the last one: that is the root, and
// has none of the vectors.
func interReduce(b *Builder, p *Params) {
	t := team{rank: p.Rank, size: p.Size - 1}
	switch p.Rank {
	case t.size:
		b.recv(0, Ref{Space: Out}, p.Count)
	case 0:
		b.send(t.size, b.combined(&t, p.Count), p.Count)
	default:
		b.combined(&t, p.Count)
	}
	b.next()
}
