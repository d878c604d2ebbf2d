package collectives

// In round i a rank sends to the rank i above it and receives from the one i below: one message each way at a time, so
// that large blocks do not share what is between two ranks.
func alltoallPairwise(b *Builder, p *Params) {
	if p.InPlace {
		b.swap(p)
		return
	}
	b.keep(p)
	for i := 1; i < p.Size; i++ {
		from, to := (p.Rank-i+p.Size)%p.Size, (p.Rank+i)%p.Size
		dst, n := p.out(from)
		src, m := p.in(to)
		b.recv(from, dst, n)
		b.send(to, src, m)
		b.next()
	}
}
