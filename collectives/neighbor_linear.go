package collectives

// All messages to and from the neighbours at once.
func neighborAllgather(b *Builder, p *Params) {
	b.fromSources(p)
	n := p.Count
	for _, peer := range p.Destinations {
		if peer >= 0 {
			b.send(peer, Ref{Space: In}, n)
		}
	}
	b.next()
}

// As the other neighbourhood operations, with a block for each destination.
func neighborAlltoall(b *Builder, p *Params) {
	b.fromSources(p)
	for i, peer := range p.Destinations {
		if src, n := p.in(i); peer >= 0 {
			b.send(peer, src, n)
		}
	}
	b.next()
}

// fromSources receives a block from each source. Where both Cartesian neighbours of a dimension are one rank, that
// rank's first message was sent to its lower neighbour: it is received as from the upper one.
func (b *Builder) fromSources(p *Params) {
	for i := range p.Sources {
		if p.Cartesian {
			i ^= 1
		}
		if dst, n := p.out(i); p.Sources[i] >= 0 {
			b.recv(p.Sources[i], dst, n)
		}
	}
}
