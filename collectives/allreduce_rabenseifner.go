package collectives

// Rabenseifner: the vector is reduced by recursive halving and gathered by recursive doubling. Each rank sends about
// twice its vector, in 2 log2 n rounds.
func allreduceRabenseifner(b *Builder, p *Params) {
	t := p.everyone()
	b.rabenseifnerTeam(&t, p.source(), Ref{Space: Out}, p.Count)
}

func (b *Builder) rabenseifnerTeam(t *team, source, home Ref, n int64) {
	h := halving{f: t.fold(), count: n}
	if h.f.rank < 0 {
		b.send(t.peer(t.rank+1), source, n)
		b.next()
		b.foldOut(t, &h.f, home, n)
		return
	}
	if t.size == 1 {
		b.copy(home, source, n)
		return
	}
	a := b.accumulate(source, home, n)
	b.foldIn(t, &h.f, &a, n)
	b.reduceHalves(t, &h, &a)
	low, high := h.span(h.f.rank, h.f.pof2)
	a.finish(low, high-low)
	b.gatherHalves(t, &h, home)
	b.foldOut(t, &h.f, home, n)
}
