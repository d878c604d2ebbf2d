package collectives

// All elements go down a tree: binomial for what is short, with more children for fewer hops.
func bcastBinomial(b *Builder, p *Params) { bcastTree(b, p, 2) }

// As binomial, with up to three children at each level.
func bcastKnomial(b *Builder, p *Params) { bcastTree(b, p, 4) }

func bcastTree(b *Builder, p *Params, radix int) {
	t := p.everyone()
	b.treeDown(&t, p.Root, radix, Ref{Space: Out}, p.Count)
}

// treeDown brings n elements at buf from root to all members.
func (b *Builder) treeDown(t *team, root, radix int, buf Ref, n int64) {
	v := tree{t: *t, root: root, radix: radix}
	if parent := v.parent(); parent >= 0 {
		b.recv(t.peer(parent), buf, n)
	}
	b.next()
	v.children(func(child, _ int) { b.send(t.peer(child), buf, n) })
	b.next()
}
