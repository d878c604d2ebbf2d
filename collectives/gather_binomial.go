package collectives

// Blocks go up a binomial tree, each rank sending those of its whole subtree: log2 n messages at the root.
func gatherBinomial(b *Builder, p *Params) {
	v := tree{t: team{rank: p.Rank, size: p.Size}, root: p.Root, radix: 2}
	at := v.at()
	if at == 0 {
		v.children(func(child, at int) {
			b.subtree(&v, at, func(block, _ int, blocks int64) {
				b.recv(child, Ref{Space: Out, Off: int64(block) * p.Count}, blocks*p.Count)
			})
		})
		if !p.InPlace {
			mine, n := p.out(p.Rank)
			b.copy(mine, Ref{Space: In}, n)
		}
		return
	}
	buf := Ref{Space: In}
	if n := v.subtree(at); n > 1 {
		buf = b.tmp(int64(n) * p.Count)
		v.children(func(child, childAt int) {
			b.recv(child, buf.At(int64(childAt-at)*p.Count), int64(v.subtree(childAt))*p.Count)
		})
		b.copy(buf, Ref{Space: In}, p.Count)
	}
	parent := v.parent()
	if parent != p.Root {
		b.send(parent, buf, int64(v.subtree(at))*p.Count)
		b.next()
		return
	}
	b.subtree(&v, at, func(_, from int, blocks int64) {
		b.send(parent, buf.At(int64(from-at)*p.Count), blocks*p.Count)
	})
	b.next()
}

// subtree calls f for the runs of consecutive ranks in a subtree, of which there are two where the numbers of the tree
// go past the last rank: the first rank, its number in the tree, and how many.
func (b *Builder) subtree(v *tree, at int, f func(rank, at int, ranks int64)) {
	n := v.subtree(at)
	first := v.member(at)
	if over := first + n - v.t.size; over > 0 {
		f(first, at, int64(n-over))
		f(0, at+n-over, int64(over))
		return
	}
	f(first, at, int64(n))
}
