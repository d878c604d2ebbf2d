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
