package collectives

// Blocks go down a binomial tree, each rank receiving those of its whole subtree: log2 n messages at the root.
func scatterBinomial(b *Builder, p *Params) {
	v := tree{t: team{rank: p.Rank, size: p.Size}, root: p.Root, radix: 2}
	at := v.at()
	if at == 0 {
		v.children(func(child, at int) {
			b.subtree(&v, at, func(block, _ int, blocks int64) {
				b.send(child, Ref{Space: In, Off: int64(block) * p.Count}, blocks*p.Count)
			})
		})
		if !p.InPlace {
			mine, n := p.in(p.Rank)
			b.copy(Ref{Space: Out}, mine, n)
		}
		return
	}
	n := v.subtree(at)
	buf := Ref{Space: Out}
	if n > 1 {
		buf = b.tmp(int64(n) * p.Count)
	}
	if parent := v.parent(); parent == p.Root {
		b.subtree(&v, at, func(_, from int, blocks int64) {
			b.recv(parent, buf.At(int64(from-at)*p.Count), blocks*p.Count)
		})
	} else {
		b.recv(parent, buf, int64(n)*p.Count)
	}
	b.next()
	v.children(func(child, childAt int) {
		b.send(child, buf.At(int64(childAt-at)*p.Count), int64(v.subtree(childAt))*p.Count)
	})
	b.copy(Ref{Space: Out}, buf, p.Count)
}
