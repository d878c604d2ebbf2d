package collectives

// Vectors go up a binomial tree, combined at each rank by pairs, whatever the root is: ranks have their numbers among the
// pof2 (see fold), and a rank is so far from the root as its number has bits other than the root's. Of the two ranks that
// have one number the root is the one that goes on, else the upper one.
func reduceBinomial(b *Builder, p *Params) {
	t := p.everyone()
	f := t.fold()
	folded := func(rank int) bool { return rank < 2*f.rest }
	number := func(rank int) int {
		if folded(rank) {
			return rank / 2
		}
		return rank - f.rest
	}
	root, mine, pair := number(p.Root), number(p.Rank), p.Rank^1
	member := func(number int) int {
		if number == root {
			return p.Root
		}
		return f.member(number)
	}
	source, home := Ref{Space: In}, Ref{Space: Out}
	if p.InPlace && p.Rank == p.Root {
		source = home
	}
	if member(mine) != p.Rank {
		b.send(pair, source, p.Count)
		return
	}
	apart := mine ^ root
	if p.Rank != p.Root && (folded(p.Rank) || apart&1 == 0) {
		home = b.tmp(p.Count)
	}
	a := b.accumulate(source, home, p.Count)
	if folded(p.Rank) {
		b.recv(pair, a.next(pair < p.Rank), p.Count)
		a.with(p.Rank, pair, 0, p.Count)
	}
	for w := 1; w < f.pof2; w *= 2 {
		other := mine ^ w
		if apart&w != 0 {
			b.send(member(other), a.cur, p.Count)
			return
		}
		b.recv(member(other), a.next(other < mine), p.Count)
		a.with(mine, other, 0, p.Count)
	}
	a.finish(0, p.Count)
}

// Vectors go up a tree in which a rank has up to three children at each level. The order of ranks is kept: for an
// operator that does not commute the tree's root is rank 0, which sends the result to the root that was asked for.
func reduceKnomial(b *Builder, p *Params) {
	const radix = 4
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
