package layout

// form is what a node is.
type form uint8

const (
	isRun  form = iota // size bytes, one after the other
	isLoop             // count times body, stride apart
	isList             // parts, one after the other
)

// node is a program: which bytes, in which order. It is shared between the Types that contain it, and never changes.
type node struct {
	form  form
	depth int
	size  int64 // > 0

	count, stride int64 // of a loop, count ≥ 2
	body          *node

	parts []piece // of a list, 2 or more
}

// piece is a node of a list, and where.
type piece struct {
	at   int64 // from where the list is
	from int64 // how many bytes the list has before it; set by list
	node *node
}

func run(size int64) *node { return &node{form: isRun, size: size} }

// repeat is n, count times. The caller has checked that the product of sizes fits.
func repeat(n *node, count, stride int64) *node {
	switch {
	case count == 1:
		return n
	case n.form == isRun && stride == n.size:
		return run(count * n.size)
	case n.form == isLoop && stride == n.count*n.stride: // the loop goes on where it ended
		return &node{form: isLoop, depth: n.depth, size: count * n.size, count: count * n.count, stride: n.stride,
			body: n.body}
	}
	return &node{form: isLoop, depth: n.depth + 1, size: count * n.size, count: count, stride: stride, body: n}
}

// flatten is up to how many pieces of inner lists become pieces of the outer one, for each that it has itself. More
// would make a list of lists as long as their product.
const flatten = 4

// appendPiece adds p behind the others, as a part of the last one if it can be.
func appendPiece(to []piece, p piece) []piece {
	if len(to) == 0 {
		return append(to, p)
	}
	last := &to[len(to)-1]
	if p.node.form == isRun && last.node.form == isRun && p.at == last.at+last.node.size {
		last.node = run(last.node.size + p.node.size)
		return to
	}
	return append(to, p)
}

// list is the program of the pieces, and where it begins.
func list(pieces []piece) (at int64, n *node) {
	pieces = flat(pieces)
	if first := pieces[0]; len(pieces) == 1 {
		return first.at, first.node
	} else if stride, ok := regular(pieces); ok {
		return first.at, repeat(first.node, int64(len(pieces)), stride)
	}
	n = &node{form: isList, parts: pieces}
	for i := range pieces {
		p := &pieces[i]
		p.from = n.size
		n.size += p.node.size
		n.depth = max(n.depth, p.node.depth+1)
	}
	return 0, n
}

// flat puts the pieces of short lists in the place of the lists.
func flat(pieces []piece) []piece {
	inner := 0
	for _, p := range pieces {
		inner += len(p.node.parts)
	}
	if inner == 0 || inner > flatten*len(pieces)+64 {
		return pieces
	}
	var all []piece
	for _, p := range pieces {
		if p.node.form != isList {
			all = appendPiece(all, p)
			continue
		}
		for _, q := range p.node.parts {
			all = appendPiece(all, piece{at: p.at + q.at, node: q.node})
		}
	}
	return all
}

// same reports whether two nodes are known to be equal.
func (n *node) same(o *node) bool {
	return n == o || n.form == isRun && o.form == isRun && n.size == o.size
}

// regular reports whether the pieces are one node at equal distances.
func regular(pieces []piece) (stride int64, ok bool) {
	var c checked
	stride = c.sub(pieces[1].at, pieces[0].at)
	for i := 1; i < len(pieces); i++ {
		if !pieces[i].node.same(pieces[0].node) || c.sub(pieces[i].at, pieces[i-1].at) != stride {
			return 0, false
		}
	}
	return stride, !c.bad
}
