package collectives

// Bruck: as recursive doubling, for any number of ranks. Tmp has the blocks in an order that begins with this rank's;
// at the end they are put right.
func allgatherBruck(b *Builder, p *Params) {
	total := b.after(p, p.Size)
	buf := b.tmp(total)
	source := Ref{Space: In}
	if p.InPlace {
		source, _ = p.out(p.Rank)
	}
	_, n := p.out(p.Rank)
	b.copy(buf, source, n)
	for w := 1; w < p.Size; w *= 2 {
		blocks := min(w, p.Size-w)
		have := b.after(p, w)
		up := (p.Rank + w) % p.Size
		b.recv(up, buf.At(have), b.after(p, w+blocks)-have)
		b.send((p.Rank-w+p.Size)%p.Size, buf, b.after(p, blocks))
		b.next()
	}
	if p.OutCounts == nil {
		high := int64(p.Size-p.Rank) * p.Count
		b.copy(Ref{Space: Out, Off: int64(p.Rank) * p.Count}, buf, high)
		b.copy(Ref{Space: Out}, buf.At(high), total-high)
		return
	}
	off := int64(0)
	for i := range p.Size {
		block, n := p.out((p.Rank + i) % p.Size)
		b.copy(block, buf.At(off), n)
		off += n
	}
}

// after is how many elements the n blocks from this rank's on have.
func (b *Builder) after(p *Params, n int) (sum int64) {
	if p.OutCounts == nil {
		return int64(n) * p.Count
	}
	for i := range n {
		sum += p.OutCounts[(p.Rank+i)%p.Size]
	}
	return sum
}
