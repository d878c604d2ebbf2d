package collectives

// Every rank sends its block to the root, which receives all at once. The v form, where only the root knows the
// counts, has no other.
func gatherLinear(b *Builder, p *Params) {
	if p.Rank != p.Root {
		b.send(p.Root, Ref{Space: In}, p.Count)
		b.next()
		return
	}
	for i := 1; i < p.Size; i++ {
		peer := (p.Root + i) % p.Size
		buf, n := p.out(peer)
		b.recv(peer, buf, n)
	}
	if mine, n := p.out(p.Rank); !p.InPlace {
		b.copy(mine, Ref{Space: In}, n)
	}
}
