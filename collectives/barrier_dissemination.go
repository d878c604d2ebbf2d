package collectives

// In round k every rank signals the rank 2^k above it and waits for the one 2^k below. After ⌈log2 n⌉ rounds it has
// heard of every rank, through others.
func barrierDissemination(b *Builder, p *Params) {
	t := p.everyone()
	b.disseminate(&t)
}

func (b *Builder) disseminate(t *team) {
	for step := 1; step < t.size; step *= 2 {
		b.await(t.peer((t.rank - step + t.size) % t.size))
		b.signal(t.peer((t.rank + step) % t.size))
		b.next()
	}
}
