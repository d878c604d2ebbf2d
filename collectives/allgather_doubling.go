package collectives

// Recursive doubling: two ranks exchange all blocks that they have, which are twice as many after each of log2 n
// rounds. For a power of two of ranks.
func allgatherDoubling(b *Builder, p *Params) {
	b.own(p)
	for w := 1; w < p.Size; w *= 2 {
		mine := p.Rank &^ (w - 1)
		n := int64(w) * p.Count
		b.recv(p.Rank^w, Ref{Space: Out, Off: int64(mine^w) * p.Count}, n)
		b.send(p.Rank^w, Ref{Space: Out, Off: int64(mine) * p.Count}, n)
		b.next()
	}
}
