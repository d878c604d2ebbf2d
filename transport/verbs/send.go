//go:build verbs && linux && cgo

package verbs

// sendPool is what the send queues of all peers share. Owner of a send buffer: this while in freeSends, the device from
// post to completion. Invariant: inFlight requests are with the device, at most limit and the last ones of failed
// sessions, so that the completion queue has room for the end of each.
type sendPool struct {
	send      slab
	freeSends []uint32
	scratch   []byte     // the last piece of send: a frame that goes with its request
	one       [1]op      // what is posted next
	spare     *record    // records of no request, linked by next: together as many as were under way at once
	inFlight  int        // requests that the device has, of all queue pairs
	limit     int        // of inFlight
	starved   []*session // refused because others hold what all share
	refusals  int        // sessions that are refused
}

// fillSends makes n buffers of the slab, which has one piece more.
func (p *sendPool) fillSends(n int) {
	for i := range n {
		p.freeSends = append(p.freeSends, uint32(i))
	}
	p.scratch = p.send.piece(uint32(n))
}

// runsShort reports whether less than half of the buffers or of the requests is left, so that each send is confirmed.
func (p *sendPool) runsShort() bool {
	return 2*len(p.freeSends) < p.send.count || 2*p.inFlight > p.limit
}

// taken notes that the device has a request of a session.
func (p *sendPool) taken(q *requests, r record) {
	if p.spare == nil {
		p.moreRecords()
	}
	x := p.spare
	p.spare = x.next
	*x = r
	if q.first == nil {
		q.first = x
	} else {
		q.last.next = x
	}
	q.last = x
	q.next++
	p.inFlight++
}

func (p *sendPool) moreRecords() {
	batch := make([]record, depth)
	for i := range batch {
		batch[i].next = p.spare
		p.spare = &batch[i]
	}
}

// over returns what the oldest request of a session had, which the device has no more.
func (p *sendPool) over(q *requests) record {
	x := q.first
	r := *x
	q.first = x.next
	*x = record{next: p.spare}
	p.spare = x
	q.done++
	p.inFlight--
	return r
}
