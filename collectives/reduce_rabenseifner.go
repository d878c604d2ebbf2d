package collectives

// Rabenseifner: the vector is reduced by recursive halving, and its parts are collected at the root by the inverse of
// that. Each rank sends about twice its vector, however many ranks there are.
func reduceRabenseifner(b *Builder, p *Params) {
	t := p.everyone()
	h := halving{f: t.fold(), count: p.Count}
	source, home := Ref{Space: In}, Ref{Space: Out}
	if p.Rank == p.Root && p.InPlace {
		source = home
	}
	if h.f.rank < 0 {
		b.send(p.Rank+1, source, p.Count)
		b.next()
		if p.Rank == p.Root {
			b.recv(p.Rank+1, home, p.Count)
			b.next()
		}
		return
	}
	if p.Rank != p.Root {
		home = b.tmp(p.Count)
	}
	a := b.accumulate(source, home, p.Count)
	b.foldIn(&t, &h.f, &a, p.Count)
	b.reduceHalves(&t, &h, &a)
	low, high := h.span(h.f.rank, h.f.pof2)
	a.finish(low, high-low)
	root := h.f.number(p.Root)
	if root < 0 {
		root = h.f.number(p.Root + 1)
	}
	b.collectHalves(&t, &h, home, root)
	if h.f.rank == root && p.Rank != p.Root {
		b.send(p.Root, home, p.Count)
		b.next()
	}
}
