package collectives

// Recursive doubling: two ranks exchange what they have combined, each of its group so far; the upper one also puts it
// before its result.
func scanDoubling(b *Builder, p *Params) {
	out := Ref{Space: Out}
	if p.Size == 1 || !p.InPlace {
		b.copy(out, p.source(), p.Count)
	}
	b.scanGroups(p, func(lower Ref) { b.combine(out, lower, out, p.Count) })
}

// As doubling for Scan; the result begins with the first group of lower ranks.
func exscanDoubling(b *Builder, p *Params) {
	out, empty := Ref{Space: Out}, true
	b.scanGroups(p, func(lower Ref) {
		if empty {
			b.copy(out, lower, p.Count)
		} else {
			b.combine(out, lower, out, p.Count)
		}
		empty = false
	})
}

// scanGroups exchanges groups, and calls f with where each group of lower ranks is. f may write Out.
func (b *Builder) scanGroups(p *Params, f func(lower Ref)) {
	if p.Size == 1 {
		return
	}
	a := b.accumulate(p.source(), b.tmp(p.Count), p.Count)
	for w := 1; w < p.Size; w *= 2 {
		other := p.Rank ^ w
		if other >= p.Size {
			continue
		}
		lower := a.apart() // f reads it when it has been combined
		b.recv(other, lower, p.Count)
		b.send(other, a.cur, p.Count)
		a.with(p.Rank, other, 0, p.Count) // before f: the first time it reads the caller's buffer
		if other < p.Rank {
			f(lower)
		}
	}
}
