package collectives

// The root sends each rank its block, all at once. The v form, where only the root knows the counts, has no other.
func scatterLinear(b *Builder, p *Params) {
	if p.Rank != p.Root {
		b.recv(p.Root, Ref{Space: Out}, p.Count)
		b.next()
		return
	}
	for i := 1; i < p.Size; i++ {
		peer := (p.Root + i) % p.Size
		buf, n := p.in(peer)
		b.send(peer, buf, n)
	}
	if mine, n := p.in(p.Rank); !p.InPlace {
		b.copy(Ref{Space: Out}, mine, n)
	}
}
