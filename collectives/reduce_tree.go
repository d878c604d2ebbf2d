package collectives

// Vectors go up a binomial tree, combined at each rank. The order of ranks is kept: for an operator that does not
// commute the tree's root is rank 0, which sends the result to the root that was asked for.
func reduceBinomial(b *Builder, p *Params) { reduceTree(b, p, 2) }

// As binomial, with up to three children at each level.
func reduceKnomial(b *Builder, p *Params) { reduceTree(b, p, 4) }

func reduceTree(b *Builder, p *Params, radix int) {
	t := p.everyone()
	top := p.Root
	if !p.Commutative {
		top = 0
	}
	source := Ref{Space: In}
	if p.InPlace && p.Rank == p.Root {
		source = Ref{Space: Out}
	}
	var home Ref
	switch {
	case p.Rank == p.Root:
		home = Ref{Space: Out}
	case p.Size > 1:
		home = b.leafless(&t, top, radix, p.Count)
	}
	at := b.treeUp(&t, top, radix, source, home, p.Count)
	switch {
	case top == p.Root:
	case p.Rank == top:
		b.send(p.Root, at, p.Count)
	case p.Rank == p.Root:
		b.recv(top, home, p.Count)
	}
	b.next()
}

// leafless takes memory for a vector at ranks that have children.
func (b *Builder) leafless(t *team, root, radix int, n int64) Ref {
	v := tree{t: *t, root: root, radix: radix}
	if v.subtree(v.at()) == 1 {
		return Ref{}
	}
	return b.tmp(n)
}

// treeUp combines n elements at source of all members at root. home is where it combines; at the root the result is
// there. It returns where this member's part is.
func (b *Builder) treeUp(t *team, root, radix int, source, home Ref, n int64) Ref {
	v := tree{t: *t, root: root, radix: radix}
	if v.subtree(v.at()) > 1 {
		a := b.accumulate(source, home, n)
		v.childrenUp(func(child, _ int) {
			b.recv(t.peer(child), a.next(false), n)
			a.upper(0, n)
		})
		if v.at() == 0 {
			a.finish(0, n)
		}
		source = a.cur
	} else if v.at() == 0 {
		b.copy(home, source, n)
		source = home
	}
	if parent := v.parent(); parent >= 0 {
		b.send(t.peer(parent), source, n)
		b.next()
	}
	return source
}
