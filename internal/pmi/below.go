package pmi

import (
	"errors"
	"fmt"
)

// Down is the way to a server below. Its methods do not wait, and are called with locks held.
type Down interface {
	// Release ends the barrier of the server below, as its Server.Release.
	Release()
	// Answer brings the answer to the oldest of its questions, or the result of a spawn, as its Server.Answered.
	Answer(text []byte)
	// Call says that a rank calls another, as its Server.Called. The server below may serve neither.
	Call(to, from int)
}

// Below is a server below this one: some of the ranks of the job are there. The server of the whole job has no ranks of
// its own then, and one in between may have both.
type Below struct {
	s     *Server
	down  Down
	limit int // how many questions may be open: each of the ranks has one at a time

	in, left bool     // guarded by Server.mu; all of its ranks are in the barrier; it is none of ours any more
	replies  []*reply // guarded by Server.mu; to its open questions, in their order
	size     int      // guarded by Server.mu; of the next answer to a get
}

// reply is the answer to one question of a server below. Its text is nil until it is known.
type reply struct{ text []byte }

// NewBelow admits a server of so many ranks. The barrier waits for it from now on.
func (s *Server) NewBelow(ranks int, down Down) *Below {
	b := &Below{s: s, down: down, limit: ranks, size: firstAnswer}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.below = append(s.below, b)
	return b
}

// Leave says that none of its ranks come by this server: others wait for them.
func (b *Below) Leave() { b.leave(0) }

// End says that all of its ranks have ended, or cannot be heard any more.
func (b *Below) End() { b.leave(1) }

func (b *Below) leave(early int) {
	s := b.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if b.left {
		return
	}
	b.left = true
	s.early += early
	for i, other := range s.below {
		if other == b {
			s.below = append(s.below[:i], s.below[i+1:]...)
			break
		}
	}
	if b.in {
		s.in--
	}
	s.gather()
}

// Put takes what was put below.
func (b *Below) Put(put []Pair) error { return b.s.Merge(put) }

// Fence says that all ranks below are in the barrier.
func (b *Below) Fence() error {
	b.s.mu.Lock()
	defer b.s.mu.Unlock()
	if b.in || b.left {
		return errors.New("it is in the fence twice")
	}
	b.in = true
	b.s.in++
	b.s.gather()
	return nil
}

// Ask answers a request of the server below, at once or when the server above has.
func (b *Below) Ask(request []byte) error {
	if n := len(request); n > 0 && request[n-1] == '\n' {
		request = request[:n-1]
	}
	l, err := parseLine(request)
	if err != nil {
		return err
	}
	switch {
	case l.cmd == spawnCommand && !l.multi:
		return b.spawn(l)
	case l.cmd != "get" && !handedUp(l.cmd) || l.multi:
		return fmt.Errorf("the request %.40q is none that is handed up", l.cmd)
	}
	s := b.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(b.replies) >= b.limit {
		return fmt.Errorf("more than %d questions at once", b.limit)
	}
	r := &reply{}
	b.replies = append(b.replies, r)
	key, _ := l.get("key")
	answered := func(answer line) {
		if l.cmd == "get" && answer.rc() == 0 {
			answer = s.addFollowers(answer, key, b.size)
			b.size = min(2*b.size, maxAnswer)
		}
		r.text = []byte(answer.String())
		b.flush()
	}
	if l.cmd == "get" {
		if answer := s.get(l); s.opts.Above == nil || !missing(answer) {
			answered(answer)
			return nil
		}
	} else if s.opts.Above == nil {
		answered(s.service(l))
		return nil
	}
	if q := s.ask(l); q.answered {
		answered(q.answer)
	} else {
		q.then = append(q.then, answered)
	}
	return nil
}

// flush sends the answers that are due. Server.mu is held.
func (b *Below) flush() {
	for len(b.replies) > 0 && b.replies[0].text != nil {
		b.down.Answer(b.replies[0].text)
		b.replies = b.replies[1:]
	}
}

// gather goes on where all ranks of this server, and those of the servers below it, are in the barrier. mu is held.
func (s *Server) gather() {
	switch {
	case s.entered < s.local || s.in < len(s.below) || s.entered+s.in == 0 || s.raised:
	case s.joins > 0 && s.early > 0:
	case s.opts.Above != nil:
		put := s.fresh
		s.fresh, s.raised = nil, true
		s.opts.Above.Fence(put)
	default:
		s.release()
	}
}
