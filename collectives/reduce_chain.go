package collectives

// Segments go from rank to rank, each combining its own with what comes from above: while one segment is received, the
// one before it is sent on. For long vectors on few ranks, and operators that commute, since the chain ends at the
// root.
func reduceChain(b *Builder, p *Params) {
	v := tree{t: team{rank: p.Rank, size: p.Size}, root: p.Root}
	at, seg := v.at(), p.segment()
	first, last := at == 0, at == p.Size-1
	source := Ref{Space: In}
	if p.InPlace && first {
		source = Ref{Space: Out}
	}
	if last {
		if first {
			b.copy(Ref{Space: Out}, source, p.Count)
			return
		}
		for off := int64(0); off < p.Count; off += seg {
			b.send(v.member(at-1), source.At(off), min(seg, p.Count-off))
			b.next()
		}
		return
	}
	// The segment that is sent and the one that is received take turns in the two halves of buf.
	var buf Ref
	if !first || p.InPlace {
		buf = b.tmp(min(2*seg, p.Count))
	}
	for off := int64(0); off < p.Count+seg; off += seg {
		mine, n := buf.At(off/seg%2*seg), min(seg, p.Count-off)
		if first && !p.InPlace {
			mine = Ref{Space: Out, Off: off}
		}
		b.recv(v.member(at+1), mine, n)
		if before := off - seg; !first && before >= 0 {
			b.send(v.member(at-1), buf.At(before/seg%2*seg), min(seg, p.Count-before))
		}
		dst := mine
		if first {
			dst = Ref{Space: Out, Off: off}
		}
		b.combine(dst, source.At(off), mine, n)
		b.next()
	}
}
