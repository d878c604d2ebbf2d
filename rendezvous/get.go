package rendezvous

// Get is READ after READ until all is here. The sender's CPU takes no part; it hears FIN.
var Get = &Scheme{
	name:  "get",
	index: 1,
	able:  func(f Facts) bool { return f.Readable },
	begin: (*Receiver).beginGet,
}

func (r *Receiver) beginGet() Action {
	r.phase = reading
	r.nextGet()
	return Action{}
}

func (r *Receiver) nextGet() { r.asked = min(r.piece, r.want-r.have) }

// NextRead is the READ to do now: n bytes at off of the message, to there in the buffer. ok: there is one.
func (r *Receiver) NextRead() (off, n int64, ok bool) {
	return r.have, r.asked, r.Reading() && !r.started
}

// ReadStarted notes that the link has the READ: OnGetDone or OnGetFailed will follow.
func (r *Receiver) ReadStarted() { r.started = true }

// OnGetDone is called when the bytes of NextRead are there.
func (r *Receiver) OnGetDone() Action {
	r.started = false
	if !r.Reading() {
		return Action{}
	}
	r.have += r.asked
	r.asked = 0
	if r.have < r.want {
		r.nextGet()
		return Action{}
	}
	if r.back.Len > 0 {
		r.Trial.frontDone()
	}
	return r.finish()
}

// OnGetFailed is called when the bytes of NextRead are not there and will not be. The rest comes as a stream.
func (r *Receiver) OnGetFailed() Action {
	r.started = false
	if !r.Reading() {
		return Action{}
	}
	r.asked, r.readable = 0, false
	return r.beginStream()
}
