package collectives

// The vector's parts go around a ring twice: combined on the way, then as results. Each rank sends about twice its
// vector, to one neighbour only, in 2(n-1) rounds. The order of ranks is not kept.
func allreduceRing(b *Builder, p *Params) {
	n := p.Size
	home := Ref{Space: Out}
	b.ringReduce(p, p.source(), home, func(i int) int64 { return part(p.Count, n, i) })
	v := tree{t: team{rank: p.Rank, size: n}}
	b.partsRing(v, home, p.Count)
}

// ringReduce combines a vector whose part i begins at start(i) around a ring. Afterwards rank i has part i at home.
func (b *Builder) ringReduce(p *Params, source, home Ref, start func(int) int64) {
	n := p.Size
	if n == 1 {
		b.copy(home, source, start(1))
		return
	}
	most := int64(0)
	for i := range n {
		most = max(most, start(i+1)-start(i))
	}
	inPlace := source == home
	var tmp Ref
	if inPlace {
		tmp = b.tmp(most)
	}
	up, down := (p.Rank+1)%n, (p.Rank-1+n)%n
	from := source
	for i := 1; i < n; i++ { // part j begins at rank j+1 and ends at rank j
		out, in := (p.Rank-i+n)%n, (p.Rank-i-1+2*n)%n
		low, length := start(in), start(in+1)-start(in)
		its := tmp
		if !inPlace { // where it is combined with this rank's
			its = home.At(low)
		}
		b.recv(down, its, length)
		b.send(up, from.At(start(out)), start(out+1)-start(out))
		b.combine(home.At(low), its, source.At(low), length)
		b.next()
		from = home
	}
}
