package layout

// Runs calls visit with the data in its order: count runs of size bytes each, which begin at displacements at,
// at + stride and so on. Runs ends when visit returns false, and reports whether visit never did.
func (t *Type) Runs(visit func(at, size, count, stride int64) bool) bool {
	return t.prog == nil || t.prog.runsFrom(t.at, visit)
}

// runsFrom is Runs of a program that begins at at. It reports whether visit never returned false.
func (n *node) runsFrom(at int64, visit func(at, size, count, stride int64) bool) bool {
	switch {
	case n.form == isRun:
		return visit(at, n.size, 1, 0)
	case n.form == isLoop && n.body.form == isRun:
		return visit(at, n.body.size, n.count, n.stride)
	case n.form == isLoop:
		for i := range n.count {
			if !n.body.runsFrom(at+i*n.stride, visit) {
				return false
			}
		}
		return true
	}
	for _, p := range n.parts {
		if !p.node.runsFrom(at+p.at, visit) {
			return false
		}
	}
	return true
}
