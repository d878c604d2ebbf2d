package pmi

import (
	"errors"
	"fmt"
)

// The servers of a job may be a tree (below.go). One of some of the ranks has another above it, which may be the one of
// the whole job. What its ranks put it keeps, and sends up when all of them are in the barrier. What it does not know
// it asks for above; the values that come with an answer are kept.

// Pair is a key and its value.
type Pair struct{ Key, Value string }

// Above is the way to the server above. Its methods do not wait, and are called with locks held.
type Above interface {
	// Fence says that all ranks here and below are in the barrier, and what they have put since the last one.
	// Server.Release ends the barrier.
	Fence(put []Pair)
	// Ask hands a request up. Server.Answered brings the answer, once for each Ask, in their order. The result of a spawn
	// comes when it is there.
	Ask(request []byte)
}

// question is a request that was handed up.
type question struct {
	done     chan struct{}
	answered bool         // guarded by Server.mu; there is an answer, or there will be none
	answer   line         // written before done is closed
	then     []func(line) // guarded by Server.mu; called with the answer, while that is held
}

// handedUp reports whether only the server of the whole job can answer a request.
func handedUp(cmd string) bool {
	return cmd == "publish_name" || cmd == "lookup_name" || cmd == "unpublish_name" || cmd == callCommand
}

// missing reports whether a reply to a get says that there is no such key.
func missing(reply line) bool {
	v, _ := reply.get("msg")
	return v == keyNotFound
}

// askAndWait hands a request up and waits for the answer.
func (s *Server) askAndWait(l line) line {
	s.mu.Lock()
	q := s.ask(l)
	s.mu.Unlock()
	<-q.done
	return q.answer
}

// ask hands a request up. The same get of several ranks goes up once. mu is held.
func (s *Server) ask(l line) *question {
	text, err := l.encode()
	if err != nil || s.closed {
		why := "the_launcher_is_gone"
		if err != nil {
			why = "the_request_is_too_long"
		}
		q := &question{done: make(chan struct{}), answered: true, answer: errorReply(replyName(l.cmd), why)}
		close(q.done)
		return q
	}
	q := s.asked[string(text)]
	if q == nil || l.cmd != "get" {
		q = &question{done: make(chan struct{}), answer: errorReply(replyName(l.cmd), "the_launcher_is_gone")}
		a := asked{string(text), q, ""}
		if key, _ := l.get("key"); l.cmd == "get" {
			a.prefix, _, _ = numbered(key)
		}
		s.asked[a.text] = q
		if held, open := s.held[a.prefix]; open {
			s.held[a.prefix] = append(held, a)
		} else {
			s.send(a, nil)
		}
	}
	return q
}

// send hands a question up, with those that wait for its answer. mu is held.
func (s *Server) send(a asked, held []asked) {
	if a.prefix != "" {
		s.held[a.prefix] = held
	}
	s.order = append(s.order, a)
	s.opts.Above.Ask([]byte(a.text))
}

// goOn deals with the questions that were held back for the answer to one like them: those that it has answered too,
// and the next one. mu is held.
func (s *Server) goOn(prefix string) {
	held := s.held[prefix]
	delete(s.held, prefix)
	for i, a := range held {
		request, _ := parseLine([]byte(a.text[:len(a.text)-1])) // it was made by us
		if reply := s.get(request); !missing(reply) {
			s.finish(a, reply)
			continue
		}
		s.send(a, held[i+1:])
		return
	}
}

// finish hands an answer to those who wait for it. mu is held.
func (s *Server) finish(a asked, l line) {
	a.q.answer, a.q.answered = l, true
	if s.asked[a.text] == a.q {
		delete(s.asked, a.text)
	}
	close(a.q.done)
	for _, then := range a.q.then {
		then(l)
	}
}

// asked is a question with the text under which it is known.
type asked struct {
	text   string
	q      *question
	prefix string // of a get of a key that ends in a number: one of them is open at a time, and brings others' values
}

// Answered brings the answer to the oldest request that is unanswered, since the server above answers in order, or the
// result of a spawn.
func (s *Server) Answered(answer []byte) error {
	l, err := parseLine(answer)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if l.cmd == replyName(spawnCommand) {
		return s.spawned(l)
	}
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
	s.finish(a, l)
	s.goOn(a.prefix)
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
	for _, held := range s.held {
		s.order = append(s.order, held...)
	}
	for _, a := range s.order {
		a.q.answered = true
		close(a.q.done)
	}
	s.order, s.asked, s.held, s.spawning = nil, nil, nil, nil
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
		if s.opts.Above != nil {
			s.fresh = append(s.fresh, p)
		}
	}
	return nil
}
