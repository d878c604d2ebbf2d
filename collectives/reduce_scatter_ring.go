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
		most = max(most, l.length(i))
	}
	source, up, down := p.source(), (p.Rank+1)%n, (p.Rank-1+n)%n
	in, out := b.tmp(most), b.tmp(most) // what is received, and what was combined in the round before
	sent := down
	low := l.start(sent)
	for i := 1; i < n; i++ {
		from := out
		if i == 1 {
			from = source.At(low)
		}
		got := (sent - 1 + n) % n
		if sent == 0 {
			low = l.start(n)
		}
		low -= l.length(got)
		b.recv(down, in, l.length(got))
		b.send(up, from, l.length(sent))
		b.combine(in, in, source.At(low), l.length(got))
		b.next()
		in, out, sent = out, in, got
	}
	b.copy(Ref{Space: Out}, out, l.length(p.Rank))
}

// parts are the parts of a vector that ranks receive of a reduce-scatter.
type parts struct {
	counts []int64
	count  int64
}

func (p *Params) parts() parts { return parts{p.InCounts, p.Count} }

// start is where part i begins; part Size begins at the vector's end. It looks at all counts before i.
func (l parts) start(i int) (at int64) {
	if l.counts == nil {
		return int64(i) * l.count
	}
	for _, c := range l.counts[:i] {
		at += c
	}
	return at
}

// length is that of part i.
func (l parts) length(i int) int64 {
	if l.counts == nil {
		return l.count
	}
	return l.counts[i]
}
