package collectives

// In each group the vectors go up a binomial tree to its first rank. These two exchange what they have. Each sends the
// ranks of its group their blocks of the other group's result, all at once.
func interReduceScatter(b *Builder, p *Params) {
	t, other := p.group()
	own := b.combined(&t, p.Count)
	if t.rank != 0 {
		b.recv(t.peer(0), Ref{Space: Out}, p.InCounts[t.rank])
		b.next()
		return
	}
	far := b.tmp(p.Count)
	b.recv(other, far, p.Count)
	b.send(other, own, p.Count)
	b.next()
	at := p.InCounts[0]
	for i := 1; i < t.size; i++ {
		b.send(t.peer(i), far.At(at), p.InCounts[i])
		at += p.InCounts[i]
	}
	b.copy(Ref{Space: Out}, far, p.InCounts[0])
}
