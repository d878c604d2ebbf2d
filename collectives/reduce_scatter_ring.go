package collectives

// The vector's parts go around a ring, combined on the way, and end at their ranks. Each rank sends its vector once, to
// one neighbour, in n-1 rounds. The order of ranks is not kept.
func reduceScatterRing(b *Builder, p *Params) {
	l := p.parts()
	n := p.Size
	if n == 1 {
		b.copy(Ref{Space: Out}, p.source(), l.start(1))
		return
	}
	most := int64(0)
	for i := range n {
		most = max(most, l.start(i+1)-l.start(i))
	}
	source, up, down := p.source(), (p.Rank+1)%n, (p.Rank-1+n)%n
	in, out := b.tmp(most), b.tmp(most) // what is received, and what was combined in the round before
	for i := 1; i < n; i++ {
		sent, got := (p.Rank-i+n)%n, (p.Rank-i-1+2*n)%n
		low, length := l.start(got), l.start(got+1)-l.start(got)
		from := out
		if i == 1 {
			from = source.At(l.start(sent))
		}
		b.recv(down, in, length)
		b.send(up, from, l.start(sent+1)-l.start(sent))
		b.combine(in, in, source.At(low), length)
		b.next()
		in, out = out, in
	}
	b.copy(Ref{Space: Out}, out, l.start(p.Rank+1)-l.start(p.Rank))
}

// parts are the parts of a vector that ranks receive of a reduce-scatter.
type parts struct {
	counts []int64
	count  int64
}

func (p *Params) parts() parts { return parts{p.InCounts, p.Count} }

// start is where part i begins; part Size begins at the vector's end.
func (l parts) start(i int) (at int64) {
	if l.counts == nil {
		return int64(i) * l.count
	}
	for _, c := range l.counts[:i] {
		at += c
	}
	return at
}
