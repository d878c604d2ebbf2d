package collectives

// Segments go from rank to rank, each combining its own with what comes from below: while one segment is received, the
// one before it is sent on.
func scanChain(b *Builder, p *Params) {
	source, out := p.source(), Ref{Space: Out}
	seg := p.segment()
	var in Ref
	sum := source // what is sent on
	if p.Rank > 0 {
		in, sum = b.tmp(min(seg, p.Count)), out
	}
	for off := int64(0); off < p.Count+seg; off += seg {
		n := min(seg, p.Count-off)
		if p.Rank > 0 {
			b.recv(p.Rank-1, in, n)
		}
		if before := off - seg; p.Rank < p.Size-1 && before >= 0 {
			b.send(p.Rank+1, sum.At(before), min(seg, p.Count-before))
		}
		if p.Rank > 0 {
			b.combine(out.At(off), in, source.At(off), n)
		}
		b.next()
	}
	if p.Rank == 0 { // not before the others have what they wait for
		b.copy(out, source, p.Count)
	}
}

// As chain for Scan; what comes is the result, and what is sent on has this rank's own behind it.
func exscanChain(b *Builder, p *Params) {
	source, out := p.source(), Ref{Space: Out}
	seg := p.segment()
	last := p.Rank == p.Size-1
	var in, pass Ref
	if p.Rank > 0 {
		in = b.tmp(min(seg, p.Count))
		if !last {
			pass = b.tmp(min(2*seg, p.Count)) // what is sent, and what is combined for the next round
		}
	}
	for off := int64(0); off < p.Count+seg; off += seg {
		n := min(seg, p.Count-off)
		if p.Rank > 0 {
			b.recv(p.Rank-1, in, n)
		}
		if before := off - seg; !last && before >= 0 {
			from := source.At(before)
			if p.Rank > 0 {
				from = pass.At(before / seg % 2 * seg)
			}
			b.send(p.Rank+1, from, min(seg, p.Count-before))
		}
		if p.Rank > 0 {
			if !last {
				b.combine(pass.At(off/seg%2*seg), in, source.At(off), n)
			}
			b.copy(out.At(off), in, n)
		}
		b.next()
	}
}
