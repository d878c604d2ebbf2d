package rendezvous

// The split scheme: both processors copy. The front of the message is got as
// ever, the sender puts the back into the receiver's buffer, and every byte is
// copied once. Only the sender can say that it has stopped writing, so it is
// waited for. The front may be empty: then the receiver does nothing at all, as
// befits one that computes.

func (r *Receiver) beginSplit(front int64) Action {
	r.back = r.want - front
	r.want = front
	return Action{Do: AskPut, Off: front, Len: r.back}
}

func (r *Receiver) put(in Input) Action {
	if r.back == 0 || in.On == PutDone && in.Len != r.back {
		return failf("the sender has written %d bytes where %d were asked for", in.Len, r.back)
	}
	back := r.back
	r.back = 0
	if in.On == PutDone {
		if r.have < r.want {
			return Action{}
		}
		return r.finish()
	}
	// Fetch the back like the front. A READ that is under way goes on into it.
	r.want += back
	if r.scheme == Idle {
		return r.beginGet()
	}
	if r.scheme == Stream { // what was asked for ends at the front: ask for all that is missing
		return r.beginStream()
	}
	return Action{}
}
