package collectives

// All messages at once. Each rank begins with the rank above it, so that they do not all send to one.
func alltoallLinear(b *Builder, p *Params) {
	if p.InPlace {
		b.swap(p)
		return
	}
	for i := 1; i < p.Size; i++ {
		peer := (p.Rank - i + p.Size) % p.Size
		buf, n := p.out(peer)
		b.recv(peer, buf, n)
	}
	for i := 1; i < p.Size; i++ {
		peer := (p.Rank + i) % p.Size
		buf, n := p.in(peer)
		b.send(peer, buf, n)
	}
	b.keep(p)
}

// keep copies the block that a rank has for itself.
func (b *Builder) keep(p *Params) {
	dst, n := p.out(p.Rank)
	src, _ := p.in(p.Rank)
	b.copy(dst, src, n)
}

// swap is alltoall in place: in round i the ranks of each pair whose sum is i, modulo the size, exchange their blocks
// through Tmp.
func (b *Builder) swap(p *Params) {
	most := int64(0)
	for i := range p.Size {
		_, n := p.out(i)
		most = max(most, n)
		if p.OutCounts == nil {
			break
		}
	}
	tmp := b.tmp(most)
	for i := range p.Size {
		peer := (i - p.Rank + p.Size) % p.Size
		if peer == p.Rank {
			continue
		}
		buf, n := p.out(peer)
		b.recv(peer, tmp, n)
		b.send(peer, buf, n)
		b.copy(buf, tmp, n)
	}
}
