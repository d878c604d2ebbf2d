package pmi

import (
	"errors"
	"fmt"
)

// A server of some of the ranks of a job has another above it, which may be the one of the whole job. What its ranks
// put it keeps, and sends up when all of them are in the barrier. What it does not know it asks for above; the values
// that come with an answer are kept.

// Pair is a key and its value.
type Pair struct{ Key, Value string }

// Above is the way to the server above. Its methods do not wait, and are called with locks held.
type Above interface {
	// Fence says that all ranks here are in the barrier, and what they have put since the last one. Server.Release
	// ends the barrier.
	Fence(put []Pair)
	// Ask hands a request up. Server.Answered brings the answer, once for each Ask.
	Ask(request []byte)
}

// question is a request that was handed up.
type question struct {
	done   chan struct{}
	answer line // written before done is closed
}

// handedUp are the requests that only the server of the whole job can answer.
func handedUp(cmd string) bool {
	return cmd == "publish_name" || cmd == "lookup_name" || cmd == "unpublish_name"
}

// ask hands a request up and waits for the answer. The same get of several ranks goes up once.
func (s *Server) ask(l line) line {
	failed := refusal(replyName(l.cmd), "the_launcher_is_gone")
	text, err := l.encode()
	if err != nil {
		return refusal(replyName(l.cmd), "the_request_is_too_long")
	}
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return failed
	}
	q := s.asked[string(text)]
	if q == nil || l.cmd != "get" {
		q = &question{done: make(chan struct{}), answer: failed}
		s.asked[string(text)] = q
		s.order = append(s.order, asked{string(text), q})
		s.opts.Above.Ask(text)
	}
	s.mu.Unlock()
	<-q.done
	return q.answer
}

// asked is a question with the text under which it is known.
type asked struct {
	text string
	q    *question
}

// Answered brings the answer to the oldest request that is unanswered: the server above answers in order.
func (s *Server) Answered(answer []byte) error {
	l, err := parseLine(answer)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.order) == 0 {
		return errors.New("an answer without a question")
	}
	a := s.order[0]
	s.order = s.order[1:]
	request, err := parseLine([]byte(a.text[:len(a.text)-1]))
	if err != nil {
		return err
	}
	if l.cmd != replyName(request.cmd) {
		return fmt.Errorf("the answer %.40q to the question %.40q", l.cmd, request.cmd)
	}
	if key, _ := request.get("key"); request.cmd == "get" && l.rc() == 0 {
		s.learn(key, &l)
	}
	a.q.answer = l
	if s.asked[a.text] == a.q {
		delete(s.asked, a.text)
	}
	close(a.q.done)
	return nil
}

// learn keeps the values of an answer as far as there is room, and takes those of other keys out of it. mu is held.
func (s *Server) learn(key string, l *line) {
	own := l.fields[:0:0]
	for _, f := range l.fields {
		switch f.key {
		case "rc", "msg":
			own = append(own, f)
			continue
		case "value":
			own = append(own, f)
			f.key = key
		}
		if _, known := s.kvs[f.key]; !known && len(f.key) <= keyMax && len(f.value) <= valMax &&
			s.room(len(f.key)+len(f.value)) {
			s.kvs[f.key] = f.value
		}
	}
	l.fields = own
}

// giveUp ends all questions. mu is held.
func (s *Server) giveUp() {
	for _, a := range s.order {
		close(a.q.done)
	}
	s.order, s.asked = nil, nil
}

// Release ends the barrier whose Fence went up.
func (s *Server) Release() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.raised {
		return errors.New("the end of a barrier in which not all ranks are")
	}
	s.raised = false
	s.release()
	return nil
}

// Merge adds what was put below. A key that is known already keeps its value. It fails where a pair could not have been
// put, or there is no room.
func (s *Server) Merge(put []Pair) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range put {
		if p.Key == "" || len(p.Key) > keyMax || len(p.Value) > valMax || !printable(p.Key) || !printable(p.Value) {
			return fmt.Errorf("the key %.70q with a value of %d bytes is none of PMI-1", p.Key, len(p.Value))
		}
		if _, known := s.kvs[p.Key]; known {
			continue
		}
		if !s.room(len(p.Key) + len(p.Value)) {
			return errors.New("the ranks have put more than there is room for")
		}
		s.kvs[p.Key] = p.Value
	}
	return nil
}

// Answer answers a request of a server below, with the values of the keys that follow.
func (s *Server) Answer(request []byte) ([]byte, error) {
	if n := len(request); n > 0 && request[n-1] == '\n' {
		request = request[:n-1]
	}
	l, err := parseLine(request)
	if err != nil {
		return nil, err
	}
	switch {
	case l.cmd == "get":
		reply := s.get(l)
		if key, _ := l.get("key"); reply.rc() == 0 {
			s.mu.Lock()
			reply = s.addFollowers(reply, key)
			s.mu.Unlock()
		}
		return []byte(reply.String()), nil
	case handedUp(l.cmd):
		return []byte(s.service(l).String()), nil
	}
	return nil, fmt.Errorf("the request %.40q is none that is handed up", l.cmd)
}
