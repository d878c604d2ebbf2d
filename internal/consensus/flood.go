package consensus

// Flood is news that all living ranks are to hear, though ranks die meanwhile that have heard it. Each rank passes it
// on when it first hears it, to its neighbours: the living ranks at the distances 1, 2, 4 and so on, in both directions
// of a ring. When it hears of a death it passes the news on to its new neighbours. All living ranks know of the same
// deaths in the end, and their ring is whole then: if one of them has the news, all have.
type Flood struct {
	n, me int
	sent  Set // the ranks that have been told, and those that have told this one
}

// NewFlood returns the news at one of n ranks.
func NewFlood(n, me int) *Flood { return &Flood{n: n, me: me} }

// Heard notes that a rank has the news.
func (f *Flood) Heard(rank int) {
	if rank >= 0 && rank < f.n {
		f.sent.Add(rank)
	}
}

// Next returns the ranks to tell now, if these ranks are dead.
func (f *Flood) Next(dead Set) (tell []int) {
	var ring []int // the living ranks, from this one on
	for i := range f.n {
		if rank := (f.me + i) % f.n; rank == f.me || !dead.Has(rank) {
			ring = append(ring, rank)
		}
	}
	for step := 1; step < len(ring); step *= 2 {
		for _, at := range []int{step, len(ring) - step} {
			if f.sent.Add(ring[at]) {
				tell = append(tell, ring[at])
			}
		}
	}
	return tell
}
