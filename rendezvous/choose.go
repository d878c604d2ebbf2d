package rendezvous

// Facts are what is known of a message when it is matched.
type Facts struct {
	Size, Room int64     // of the message; of the receiver's buffer
	Readable   bool      // the sender's memory can be read
	Writable   bool      // the sender can write the receiver's, as far as is known
	Mapped     bool      // the sender's memory is mapped here
	Presence   *Presence // the sender's; nil: not known
	Watched    bool      // the receiver computes, and its watcher does what is done for it
	Computing  bool      // no caller of the receiver waits: what it does itself is taken from a computation
	Mutual     bool      // the sender has messages of the receiver's to fetch

	polls bool // the receiver waits, and the sender is seen to look for packets
}

// Presence says whether the sender can do its part. It has the fields of transport.Presence.
type Presence struct {
	Polls func() bool // it looks for packets
	Waits func() bool // it does, or sleeps in a call of the library and is woken by what is urgent
}

// mayWrite reports whether the sender can write the message, or a part of it.
func (f Facts) mayWrite() bool {
	return f.Readable && f.Writable && f.Size <= f.Room && f.Size >= minSplit
}

// able are the schemes that can move the message now. A sender that does not look for packets would not stream.
func (f *Facts) able(buf *[schemes]*Scheme) []*Scheme {
	f.polls = f.Readable && !f.Watched && f.Presence != nil && f.Presence.Polls()
	list := buf[:0]
	for _, s := range Schemes {
		if s.able(*f) {
			list = append(list, s)
		}
	}
	return list
}

// Chooser chooses how messages come to one rank.
type Chooser struct {
	Now   func() int64 // the time in nanoseconds, of a clock that does not go back
	Looks uint64       // for packets, ever: the caller counts them

	held  int64  // when what ends now has ended: see Together; 0: now
	open  int    // transfers that have been chosen for and have not ended
	alone *Trial // that of the one of them that has been alone from its beginning, if there is one
}

// Together runs ends, in which transfers end that one call has fetched: at the same time.
func (c *Chooser) Together(ends func()) {
	c.held = c.Now()
	ends()
	c.held = 0
}

// Choose picks the scheme for a transfer from a peer, and with Split how much of its end the sender writes. The cost of
// the transfer is noted in tr, which stays where it is until the end, and goes into t, the peer's tuner.
func (c *Chooser) Choose(tr *Trial, t *Tuner, f *Facts) (s *Scheme, back int64) {
	c.open++
	c.alone = nil
	*tr = Trial{chooser: c}
	if f.Computing && c.open == 1 && f.mayWrite() && f.Presence != nil && f.Presence.Waits() {
		return Split, f.Size
	}
	if f.Mutual && f.Readable {
		// What the sender's processor did for this message would be taken from its own: least work in all is fastest.
		return Get, 0
	}
	var buf [schemes]*Scheme
	able := f.able(&buf)
	if len(able) == 1 {
		return able[0], 0
	}
	alone, among := t.class(f.Size, f.Mapped)
	if f.Size > f.Room { // what moves is less: its time says nothing of messages of this size
		return alone.cheapest(able), 0
	}
	if c.open == 1 {
		c.alone = tr
		tr.tuned, tr.began = alone, c.Now()
		tr.scheme = alone.pick(able, aloneTries)
		return tr.scheme, alone.backOf(f.Size)
	}
	s, member := among.next(able, f.Size)
	if member {
		tr.crowd = among
	}
	return s, among.backOf(f.Size)
}

// Trial is what one transfer teaches the tuner. The zero Trial, and one that has ended, teach nothing.
type Trial struct {
	chooser *Chooser
	scheme  *Scheme
	tuned   *tuned // of a transfer that was alone when it began
	crowd   *crowd // the run that it belongs to
	began   int64
	front   uint64 // Looks when the front of a split message was there
}

// frontDone is called when the receiver has done its part of a split message.
func (tr *Trial) frontDone() {
	if tr.tuned != nil || tr.crowd != nil {
		tr.front = tr.chooser.Looks
	}
}

// backDone is called when the sender has done its part. reading: the receiver has not. What the first look after the
// last READ finds has come while that went on.
func (tr *Trial) backDone(reading bool) {
	if tr.tuned == nil && tr.crowd == nil {
		return
	}
	senderFirst := reading || tr.chooser.Looks-tr.front <= 1
	switch {
	case tr.tuned != nil:
		tr.tuned.balance(senderFirst)
	case senderFirst:
		tr.crowd.votes++
	default:
		tr.crowd.votes--
	}
}

// end is called when the transfer of size bytes is over.
func (tr *Trial) end(size int64, well bool) {
	c := tr.chooser
	if c == nil {
		return
	}
	c.open--
	if well && c.alone == tr && tr.tuned != nil {
		tr.tuned.learn(tr.scheme, size, c.Now()-tr.began)
	}
	if tr.crowd != nil {
		now := c.held
		if now == 0 {
			now = c.Now()
		}
		tr.crowd.ended(size, now)
	}
	*tr = Trial{}
}
