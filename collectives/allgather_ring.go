package collectives

// In each round a rank sends its neighbour above the block that it received in the round before. Of equal and unequal
// blocks, each goes over each link once.
func allgatherRing(b *Builder, p *Params) {
	b.own(p)
	up, down := (p.Rank+1)%p.Size, (p.Rank-1+p.Size)%p.Size
	for i := range p.Size - 1 {
		mine, n := p.out((p.Rank - i + p.Size) % p.Size)
		its, m := p.out((p.Rank - i - 1 + p.Size) % p.Size)
		b.recv(down, its, m)
		b.send(up, mine, n)
		b.next()
	}
}

// own puts this rank's block into Out.
func (b *Builder) own(p *Params) {
	if !p.InPlace {
		mine, n := p.out(p.Rank)
		b.copy(mine, Ref{Space: In}, n)
	}
}
