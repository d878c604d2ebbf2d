package collectives

// Bruck: a block that is for the rank d above goes there in the steps of d's binary digits, together with all others
// that take this step. That is log2 n messages of half of all blocks, for blocks so short that messages cost more than
// bytes.
func alltoallBruck(b *Builder, p *Params) {
	n, count := p.Size, p.Count
	all := int64(n) * count
	buf, out, in := b.tmp(all), b.tmp(all/2+count), b.tmp(all/2+count)
	source := p.source()
	high := int64(n-p.Rank) * count
	b.copy(buf, source.At(int64(p.Rank)*count), high) // buf[d]: the block for the rank d above
	b.copy(buf.At(high), source, all-high)
	for w := 1; w < n; w *= 2 {
		packed := int64(0)
		for d := w; d < n; d += 2 * w { // the distances with this digit come in runs of w
			run := int64(min(w, n-d)) * count
			b.copy(out.At(packed), buf.At(int64(d)*count), run)
			packed += run
		}
		b.recv((p.Rank-w+n)%n, in, packed)
		b.send((p.Rank+w)%n, out, packed)
		packed = 0
		for d := w; d < n; d += 2 * w {
			run := int64(min(w, n-d)) * count
			b.copy(buf.At(int64(d)*count), in.At(packed), run)
			packed += run
		}
	}
	for d := range n { // buf[d] is now the block from the rank d below
		dst, _ := p.out((p.Rank - d + n) % n)
		b.copy(dst, buf.At(int64(d)*count), count)
	}
}
