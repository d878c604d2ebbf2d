package simulate

// event is that a rank begins its next round.
type event struct {
	at   float64
	rank int32
}

func (e event) before(f event) bool { return e.at < f.at || e.at == f.at && e.rank < f.rank }

// queue is a heap of events with four children to each, the earliest first.
type queue []event

func (q *queue) push(e event) {
	h := append(*q, e)
	i := len(h) - 1
	for i > 0 {
		parent := (i - 1) / 4
		if !e.before(h[parent]) {
			break
		}
		h[i] = h[parent]
		i = parent
	}
	h[i] = e
	*q = h
}

func (q *queue) pop() event {
	h := *q
	first, e := h[0], h[len(h)-1]
	h = h[:len(h)-1]
	i := 0
	for {
		child := 4*i + 1
		if child >= len(h) {
			break
		}
		for c, last := child+1, min(child+4, len(h)); c < last; c++ {
			if h[c].before(h[child]) {
				child = c
			}
		}
		if !h[child].before(e) {
			break
		}
		h[i] = h[child]
		i = child
	}
	if len(h) > 0 {
		h[i] = e
	}
	*q = h
	return first
}
