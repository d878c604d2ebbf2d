package rendezvous

// The get scheme: READ after READ until everything is here. The sender only
// hears FIN.

func (r *Receiver) beginGet() Action {
	r.scheme = Get
	return r.nextGet()
}

func (r *Receiver) nextGet() Action {
	r.asked = min(r.piece, r.want-r.have)
	return Action{Do: Read, Off: r.have, Len: r.asked}
}

func (r *Receiver) got(in Input) Action {
	if r.scheme != Get || in.Len != r.asked {
		return failf("a READ of %d bytes ended that was not asked for (%v, %d)", in.Len, r.scheme, r.asked)
	}
	r.have += r.asked
	r.asked = 0
	if r.have == r.want {
		return r.finish()
	}
	return r.nextGet()
}
