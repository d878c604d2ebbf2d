package layout

// Within calls visit with the places of the data in memory that consists of equal pieces of period bytes, the first of
// which begins at displacement 0: bytes lo up to hi of a piece. Data at one place in many pieces is seldom visited more
// than once. Within ends when visit returns false, and reports whether visit never did. period > 0.
func (t *Type) Within(period int64, visit func(lo, hi int64) bool) bool {
	if t.prog == nil {
		return true
	}
	w := within{period: period, visit: visit, seen: map[begun]bool{}}
	return w.walk(t.prog, t.at)
}

// begun is a loop or a list, and its first byte's place in a piece.
type begun struct {
	node *node
	at   int64
}

type within struct {
	period int64
	visit  func(lo, hi int64) bool
	seen   map[begun]bool // these need no second look
}

// walk visits the places of n, which begins at at. It reports whether the visit goes on: visit never returned false.
func (w *within) walk(n *node, at int64) bool {
	if at %= w.period; at < 0 {
		at += w.period
	}
	if n.form == isRun {
		return w.run(at, n.size)
	}
	if w.seen[begun{n, at}] {
		return true
	}
	w.seen[begun{n, at}] = true
	if n.form == isList {
		for _, p := range n.parts {
			if !w.walk(p.node, at+p.at%w.period) {
				return false
			}
		}
		return true
	}
	stride, first := n.stride%w.period, at
	for i := int64(0); i < n.count; i++ {
		if !w.walk(n.body, at) {
			return false
		}
		if at = (at + stride) % w.period; at < 0 {
			at += w.period
		}
		if at == first { // from here on it is as before
			break
		}
	}
	return true
}

// run visits size bytes from at on, which lie in one piece, in two or in all. It reports whether the visit goes on:
// visit never returned false.
func (w *within) run(at, size int64) bool {
	switch {
	case size >= w.period:
		return w.visit(0, w.period)
	case size <= w.period-at:
		return w.visit(at, at+size)
	}
	return w.visit(at, w.period) && w.visit(0, size-(w.period-at))
}
