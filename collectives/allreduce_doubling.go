package collectives

// Recursive doubling: two ranks exchange all they have combined so far. log2 n rounds of the whole vector, the fewest
// there can be.
func allreduceDoubling(b *Builder, p *Params) {
	t := p.everyone()
	b.allreduceTeam(&t, p.source(), Ref{Space: Out}, p.Count)
}

func (b *Builder) allreduceTeam(t *team, source, home Ref, n int64) {
	f := t.fold()
	if f.rank < 0 {
		b.send(t.peer(t.rank+1), source, n)
		b.next()
		b.foldOut(t, &f, home, n)
		return
	}
	a := b.accumulate(source, home, n)
	b.foldIn(t, &f, &a, n)
	for w := 1; w < f.pof2; w *= 2 {
		other := f.rank ^ w
		peer := t.peer(f.member(other))
		b.recv(peer, a.next(other < f.rank), n)
		b.send(peer, a.cur, n)
		a.with(f.rank, other, 0, n)
	}
	a.finish(0, n)
	b.foldOut(t, &f, home, n)
}
