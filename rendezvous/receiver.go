package rendezvous

// Receiver is the receiving end of one transfer.
type Receiver struct {
	want   int64 // bytes to fetch: the message, or the buffer if that is shorter; with Split, the front of it
	have   int64 // bytes in place, from the beginning. have <= want
	piece  int64 // bytes of one READ
	asked  int64 // bytes of the READ under way; 0: none. have+asked <= want
	back   int64 // bytes behind want that the sender writes; 0: none, or they are there
	gen    int32 // streams begun; fragments of an earlier one are out of date
	scheme Scheme
}

// Init sets the machine up for want bytes, READ in pieces of at most piece.
func (r *Receiver) Init(want, piece int64) { *r = Receiver{want: want, piece: piece} }

// Scheme that is in use.
func (r *Receiver) Scheme() Scheme { return r.scheme }

// Have is how many bytes are in place.
func (r *Receiver) Have() int64 { return r.have }

// Step takes one input.
func (r *Receiver) Step(in Input) Action {
	switch in.On {
	case Matched:
		if r.have == r.want {
			return r.finish()
		}
		switch {
		case in.Scheme == Split && in.Len > 0 && in.Len <= r.want:
			return r.beginSplit(r.want - in.Len)
		case in.Scheme == Get:
			return r.beginGet()
		}
		return r.beginStream()
	case Asked:
		if r.have == r.want {
			return r.finish() // the sender writes all of it
		}
		return r.beginGet()
	case PutDone, PutFailed:
		return r.put(in)
	case Stalled:
		if r.scheme != Stream {
			return Action{Do: Drop}
		}
		return r.beginGet()
	case Got:
		return r.got(in)
	case GetFailed:
		if r.scheme != Get {
			return Action{Do: Drop}
		}
		r.asked = 0
		return r.beginStream()
	case Fragment:
		return r.fragment(in)
	case Copied:
		r.have += in.Len
		if r.have == r.want {
			return r.finish()
		}
		return Action{}
	}
	return failf("a receiver got input %d", in.On)
}

// finish: the front is here. The transfer is over unless the back is still being written.
func (r *Receiver) finish() Action {
	r.scheme = Idle
	if r.back > 0 {
		return Action{}
	}
	return Action{Do: Finish}
}
