package collectives

// Signals go up a binomial tree to rank 0 and down again: 2(n-1) messages in all, where dissemination has n log2 n.
// That is less work where ranks share processors.
func barrierTree(b *Builder, p *Params) {
	t := p.everyone()
	b.signalUp(&t, 0)
	b.signalDown(&t, 0)
}

// signalUp ends at root when all members have entered.
func (b *Builder) signalUp(t *team, root int) {
	v := tree{t: *t, root: root, radix: 2}
	v.children(func(child, _ int) { b.await(t.peer(child)) })
	b.next()
	if parent := v.parent(); parent >= 0 {
		b.signal(t.peer(parent))
	}
	b.next()
}

// signalDown tells all members from root.
func (b *Builder) signalDown(t *team, root int) {
	v := tree{t: *t, root: root, radix: 2}
	if parent := v.parent(); parent >= 0 {
		b.await(t.peer(parent))
	}
	b.next()
	v.children(func(child, _ int) { b.signal(t.peer(child)) })
	b.next()
}
