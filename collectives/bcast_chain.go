package collectives

// Segments go from each rank to the next: while one is received the one before it is sent on. The time is that of the
// elements, whatever the number of ranks, once they are many segments.
func bcastChain(b *Builder, p *Params) {
	v := tree{t: team{rank: p.Rank, size: p.Size}, root: p.Root}
	at, buf := v.at(), Ref{Space: Out}
	seg := p.segment()
	for off := int64(0); off < p.Count+seg; off += seg {
		if at > 0 && off < p.Count {
			b.recv(v.member(at-1), buf.At(off), min(seg, p.Count-off))
		}
		if before := off - seg; at < p.Size-1 && before >= 0 {
			b.send(v.member(at+1), buf.At(before), min(seg, p.Count-before))
		}
		b.next()
	}
}
