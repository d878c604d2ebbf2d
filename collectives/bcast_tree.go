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
	b.fromParent(&v, buf, n)
	b.toChildren(&v, buf, n)
	b.next()
}

// fromParent receives n elements in a round of its own, unless this member is the root.
func (b *Builder) fromParent(v *tree, buf Ref, n int64) {
	if parent := v.parent(); parent >= 0 {
		b.recv(v.t.peer(parent), buf, n)
	}
	b.next()
}

// toChildren sends them on in the open round.
func (b *Builder) toChildren(v *tree, buf Ref, n int64) {
	v.children(func(child, _ int) { b.send(v.t.peer(child), buf, n) })
}
