package layout

import (
	"cmp"
	"slices"
)

// maxRuns is up to how many runs Overlaps looks at one by one.
const maxRuns = 1 << 20

// Overlaps reports whether a byte is in the data twice, so that nothing can be received there; §5.1.11. Loops of loops
// and lists are mostly seen to be apart by their strides and their ends; others are compared run by run, and are taken
// to be apart if there are more than 2²⁰ runs.
func (t *Type) Overlaps() bool {
	if t.prog == nil || t.prog.disjoint() || t.prog.runs() > maxRuns {
		return false
	}
	return overlap(t.prog.spans(nil, 0))
}

// span is the bytes from lo up to hi.
type span struct{ lo, hi int64 }

func overlap(s []span) bool {
	slices.SortFunc(s, func(a, b span) int { return cmp.Compare(a.lo, b.lo) })
	for i := 1; i < len(s); i++ {
		if s[i].lo < s[i-1].hi {
			return true
		}
	}
	return false
}

// span is from the first byte of n to its last one.
func (n *node) span() span {
	switch n.form {
	case isLoop:
		s, end := n.body.span(), (n.count-1)*n.stride
		return span{s.lo + min(end, 0), s.hi + max(end, 0)}
	case isList:
		var all span
		for i, p := range n.parts {
			s := p.node.span()
			s = span{s.lo + p.at, s.hi + p.at}
			if i == 0 {
				all = s
			}
			all = span{min(all.lo, s.lo), max(all.hi, s.hi)}
		}
		return all
	}
	return span{0, n.size}
}

// disjoint reports whether no two bytes of n are seen to be able to meet. It may say false of what is apart.
func (n *node) disjoint() bool {
	switch n.form {
	case isLoop:
		return n.disjointLoops()
	case isList:
		spans := make([]span, len(n.parts))
		for i, p := range n.parts {
			if !p.node.disjoint() {
				return false
			}
			s := p.node.span()
			spans[i] = span{s.lo + p.at, s.hi + p.at}
		}
		return !overlap(spans)
	}
	return true
}

// disjointLoops reports whether loops in loops do not overlap: the loop with the smallest stride steps over what is
// inside of all, the next over all that this one covers, and so on.
func (n *node) disjointLoops() bool {
	type dim struct{ count, stride int64 }
	var dims []dim
	for ; n.form == isLoop; n = n.body {
		dims = append(dims, dim{n.count, max(n.stride, -n.stride)})
	}
	if !n.disjoint() {
		return false
	}
	slices.SortFunc(dims, func(a, b dim) int { return cmp.Compare(a.stride, b.stride) })
	s := n.span()
	covered := s.hi - s.lo
	for _, d := range dims {
		if d.stride < covered {
			return false
		}
		covered += d.stride * (d.count - 1)
	}
	return true
}

// runs is how many n has, or some number above maxRuns.
func (n *node) runs() int64 {
	switch n.form {
	case isLoop:
		if r := n.body.runs(); r <= maxRuns && n.count <= maxRuns {
			return n.count * r
		}
		return maxRuns + 1
	case isList:
		sum := int64(0)
		for _, p := range n.parts {
			if sum += p.node.runs(); sum > maxRuns {
				return sum
			}
		}
		return sum
	}
	return 1
}

// spans adds those of all runs; n begins at at.
func (n *node) spans(to []span, at int64) []span {
	switch n.form {
	case isLoop:
		for i := range n.count {
			to = n.body.spans(to, at+i*n.stride)
		}
	case isList:
		for _, p := range n.parts {
			to = p.node.spans(to, at+p.at)
		}
	default:
		to = append(to, span{at, at + n.size})
	}
	return to
}
