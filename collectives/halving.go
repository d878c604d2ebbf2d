package collectives

// halving is recursive halving of a vector over the pof2 ranks of a fold: in each round two ranks exchange halves, each
// combines one, and goes on with it. With distances that double, neighbours first, the order of ranks is kept.
type halving struct {
	f     fold
	count int64
}

// span is the part of the vector that a rank has after all rounds with distances below w.
func (h *halving) span(rank, w int) (low, high int64) {
	high = h.count
	for d := 1; d < w; d *= 2 {
		mid := low + (high-low)/2
		if rank&d == 0 {
			high = mid
		} else {
			low = mid
		}
	}
	return low, high
}

// foldIn gives the parts of ranks that are too many to the ranks above them. It reports whether this rank still has its
// part.
func (b *Builder) foldIn(t *team, f *fold, a *accumulator, n int64) bool {
	switch {
	case f.rank < 0:
		b.send(t.peer(t.rank+1), a.cur, n)
		b.next()
		return false
	case t.rank < 2*f.rest:
		b.recv(t.peer(t.rank-1), a.next(true), n)
		a.lower(0, n)
	}
	return true
}

// foldOut gives n elements at buf to the ranks that foldIn left out.
func (b *Builder) foldOut(t *team, f *fold, buf Ref, n int64) {
	switch {
	case f.rank < 0:
		b.recv(t.peer(t.rank+1), buf, n)
	case t.rank < 2*f.rest:
		b.send(t.peer(t.rank-1), buf, n)
	}
	b.next()
}

// reduceHalves combines all parts; each rank's span (w: pof2) of the result is in a.cur.
func (b *Builder) reduceHalves(t *team, h *halving, a *accumulator) {
	f := &h.f
	for w := 1; w < f.pof2; w *= 2 {
		other := f.rank ^ w
		peer := t.peer(f.member(other))
		low, high := h.span(f.rank, 2*w)
		lowIts, highIts := h.span(other, 2*w)
		b.recv(peer, a.next(other < f.rank).At(low), high-low)
		b.send(peer, a.cur.At(lowIts), highIts-lowIts)
		a.with(f.rank, other, low, high-low)
		b.next()
	}
}

// gatherHalves is the inverse: after it each of the pof2 ranks has the whole vector at buf.
func (b *Builder) gatherHalves(t *team, h *halving, buf Ref) {
	f := &h.f
	for w := f.pof2 / 2; w > 0; w /= 2 {
		other := f.rank ^ w
		peer := t.peer(f.member(other))
		low, high := h.span(f.rank, 2*w)
		lowIts, highIts := h.span(other, 2*w)
		b.recv(peer, buf.At(lowIts), highIts-lowIts)
		b.send(peer, buf.At(low), high-low)
		b.next()
	}
}

// collectHalves brings the vector to the rank that has number root among the pof2: each other sends once.
func (b *Builder) collectHalves(t *team, h *halving, buf Ref, root int) {
	f := &h.f
	for w := f.pof2 / 2; w > 0; w /= 2 {
		other := f.rank ^ w
		peer := t.peer(f.member(other))
		if f.rank&w != root&w {
			low, high := h.span(f.rank, 2*w)
			b.send(peer, buf.At(low), high-low)
			b.next()
			return
		}
		low, high := h.span(other, 2*w)
		b.recv(peer, buf.At(low), high-low)
		b.next()
	}
}
