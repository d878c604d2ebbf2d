package stdio

import "sync"

// spool holds the standard input for ranks that each read at their own pace: a rank that does not read keeps no other
// from its input, and misses nothing if it reads late. Its memory is what the slowest rank has not taken.
type spool struct {
	mu      sync.Mutex
	changed sync.Cond // for what follows, which mu guards
	last    *piece    // empty: what comes next is written into it
	taking  int       // ranks that take input
	idle    int       // of these, those that have taken all there is
	ended   bool      // no more comes
}

// piece of the input. Once it is full it does not change; it is freed when no rank is before it any more.
type piece struct {
	data []byte
	next *piece // nil: the piece is empty
}

func newSpool() *spool {
	s := &spool{last: &piece{}}
	s.changed.L = &s.mu
	return s
}

// wanted waits until some rank has taken all there is, so that the input is read no faster than the fastest rank takes
// it. It reports whether a rank will take more.
func (s *spool) wanted() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.taking > 0 && s.idle == 0 && !s.ended {
		s.changed.Wait()
	}
	return s.taking > 0 && !s.ended
}

// add appends data, which is the spool's from now on.
func (s *spool) add(data []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last.data, s.last.next = data, &piece{}
	s.last, s.idle = s.last.next, 0
	s.changed.Broadcast()
}

// end says that no more input comes.
func (s *spool) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
	s.changed.Broadcast()
}

// taker is the position of one rank in the input. Nothing else refers to a piece that the rank has passed.
type taker struct {
	from *spool
	at   *piece
}

// newTaker adds a rank. All ranks are added before the input is read.
func (s *spool) newTaker() *taker {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.taking++
	return &taker{s, s.last}
}

// run hands the input to write until it ends or write fails.
func (t *taker) run(write func([]byte) error) {
	for t.from.full(t.at) && write(t.at.data) == nil {
		t.at = t.at.next
	}
	t.from.mu.Lock()
	defer t.from.mu.Unlock()
	t.from.taking--
	t.from.changed.Broadcast()
}

// full waits until p has data. It reports whether it has: the input may end before.
func (s *spool) full(p *piece) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p.next == nil {
		s.idle++ // until add
		s.changed.Broadcast()
	}
	for p.next == nil && !s.ended {
		s.changed.Wait()
	}
	return p.next != nil
}
