package pmi

import (
	"context"
	"strconv"
	"sync"
)

// A launcher asks a rank what it does, if that has said ask=1 in its gorun_hello, by a line
//
//	cmd=gorun_ask id=N level=N dump=FOLDER
//
// at any time, between replies. The folder is in base64url, and left out where no dump is wanted. The rank answers,
// when it can, by a line that has no reply:
//
//	cmd=gorun_state id=N text=TEXT
//
// The text is in base64url too, of at most MaxState bytes. This package does not know what it says.
const (
	askCommand   = "gorun_ask"
	stateCommand = "gorun_state"
)

// MaxState is how many bytes an answer may have.
const MaxState = 8 << 10

// Question asks a rank what it does.
type Question struct {
	ID    int // of the answer
	Level int
	Dump  string // a folder; "": none
}

// Answer is what a rank answers to a question.
type Answer struct {
	Rank, ID int
	Text     []byte
}

// answers are those that the launcher has not taken: at most one of each rank.
type answers struct {
	come chan struct{} // has room for one: there are some
	mu   sync.Mutex
	all  map[int]Answer // guarded by mu
}

// Ask asks a rank that is served here. It reports whether the rank can answer: it has joined, and has not left.
func (s *Server) Ask(rank int, q Question) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.conns[rank]
	if c == nil || !c.answers || c.left {
		return false
	}
	c.question = &q
	select {
	case c.notices <- struct{}{}:
	default:
	}
	return true
}

// Answers says that TakeAnswers has some.
func (s *Server) Answers() <-chan struct{} { return s.told.come }

// TakeAnswers returns what ranks have answered since it was called last, of each rank the last.
func (s *Server) TakeAnswers() []Answer {
	s.told.mu.Lock()
	defer s.told.mu.Unlock()
	var all []Answer
	for _, a := range s.told.all {
		all = append(all, a)
	}
	clear(s.told.all)
	return all
}

// questionLine is that of the question that the rank has not been asked yet, if there is one.
func (c *serverConn) questionLine() []byte {
	c.s.mu.Lock()
	q := c.question
	c.question = nil
	c.s.mu.Unlock()
	if q == nil {
		return nil
	}
	l := newLine(askCommand, "id", strconv.Itoa(q.ID), "level", strconv.Itoa(q.Level))
	if q.Dump != "" {
		l.fields = append(l.fields, field{"dump", b64.EncodeToString([]byte(q.Dump))})
	}
	return l.bytes()
}

// state takes what a rank answers. What makes no sense is no answer.
func (c *serverConn) state(l line) {
	id, err := l.number("id")
	encoded, _ := l.get("text")
	if err != nil || !c.greeted || b64.DecodedLen(len(encoded)) > MaxState {
		return
	}
	text, err := b64.DecodeString(encoded)
	if err != nil {
		return
	}
	x := &c.s.told
	x.mu.Lock()
	x.all[c.rank] = Answer{c.rank, id, text}
	x.mu.Unlock()
	select {
	case x.come <- struct{}{}:
	default:
	}
}

// Questions delivers what the launcher asks. A newer question takes the place of one that has not been taken.
func (c *Client) Questions() <-chan Question { return c.questions }

// asked takes a line that asks. It reports whether the line was one. The reader calls it.
func (c *Client) asked(l line) bool {
	id, err := l.number("id")
	level, err2 := l.number("level")
	if err != nil || err2 != nil {
		return false
	}
	encoded, _ := l.get("dump")
	dump, err := b64.DecodeString(encoded)
	if err != nil {
		return false
	}
	select {
	case <-c.questions:
	default:
	}
	select {
	case c.questions <- Question{id, level, string(dump)}:
	default:
	}
	return true
}

// Answer answers a question.
func (c *Client) Answer(id int, text []byte) error {
	if c.leaving.Load() {
		return c.stepError(stateCommand, ErrFinalized)
	}
	ctx, cancel := context.WithTimeout(context.Background(), abortLimit)
	defer cancel()
	l := newLine(stateCommand, "id", strconv.Itoa(id), "text", b64.EncodeToString(text[:min(len(text), MaxState)]))
	if err := c.write(ctx, l.bytes()); err != nil {
		return c.stepError(stateCommand, err)
	}
	return nil
}
