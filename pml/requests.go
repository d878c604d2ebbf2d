package pml

// requests are those of one engine: made, lent and reused.
type requests struct {
	free    *Request
	handles requestQueue
	claims  uint64          // the last number in Request.claimed
	fresh   func() *Request // makes one for a caller to hold
}

// nextClaim is a number for a wait.
func (q *requests) nextClaim() uint64 {
	q.claims++
	return q.claims
}

// take takes one of the engine's own, for a blocking call; putBack returns it.
func (q *requests) take() *Request {
	r := q.free
	if r == nil {
		r = new(Request)
		r.recv.Owner = r
		return r
	}
	q.free = r.next
	r.next = nil
	return r
}

func (q *requests) putBack(r *Request) {
	r.reset()
	r.state = stFree
	r.next = q.free
	q.free = r
}

// handle takes a request for a caller to hold; release returns it when its result has been collected.
func (q *requests) handle() *Request {
	if r := q.handles.get(); r != nil {
		return r
	}
	return q.fresh()
}

func (q *requests) release(r *Request) {
	r.reset()
	r.claimed = 0
	if r.keep != nil {
		r.state = stIdle
		return
	}
	r.state = stFree
	q.handles.put(r)
}

// requestQueue reuses the requests that callers hold in the order of their release, and only when there are many, so
// that a caller that waits twice finds its request free and is told so, rather than waiting for a stranger's.
type requestQueue struct {
	head *Request  // chained by next
	end  **Request // where the next one is chained; nil: head
	n    int
}

const requestQuarantine = 32

func (q *requestQueue) put(r *Request) {
	if q.end == nil {
		q.end = &q.head
	}
	*q.end, q.end = r, &r.next
	q.n++
}

// get leaves always one in the queue. What it returns keeps next, which counts in the queue alone.
func (q *requestQueue) get() *Request {
	if q.n <= requestQuarantine {
		return nil
	}
	r := q.head
	q.head = r.next
	q.n--
	return r
}
