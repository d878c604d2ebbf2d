package pmi

import (
	"slices"
	"strconv"
	"sync"
)

// A launcher whose job goes on without ranks that have ended tells the others of them: for one that no link leads to
// they would wait for ever. A rank of ours asks for that with gone=1 in its gorun_hello. A line
//
//	cmd=gorun_gone rank=N
//
// then comes at any time, between replies. Whether the job goes on without ranks that fail, gorun_welcome says with
// survives=1.
const goneCommand = "gorun_gone"

// Gone tells the ranks that are served here that a rank has ended, once.
func (s *Server) Gone(rank int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if slices.Contains(s.ended, rank) {
		return
	}
	s.ended = append(s.ended, rank)
	for _, c := range s.conns {
		c.wake()
	}
}

// wake is called with Server.mu held.
func (c *serverConn) wake() {
	if !c.listens {
		return
	}
	select {
	case c.notices <- struct{}{}:
	default:
	}
}

// listen has a rank told of those that have ended.
func (s *Server) listen(c *serverConn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c.listens = true
	if len(s.ended) > 0 {
		c.wake()
	}
}

// obituaries are the lines that a rank has not been told yet.
func (c *serverConn) obituaries() (lines []byte) {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	for ; c.endsSent < len(c.s.ended); c.endsSent++ {
		lines = append(lines, newLine(goneCommand, "rank", strconv.Itoa(c.s.ended[c.endsSent])).bytes()...)
	}
	return lines
}

// gone is what a Client has heard of other ranks: that they have ended, or call this one (call.go). Either way the rank
// tries to make a connection to them.
type gone struct {
	survives bool          // set by hello
	wake     chan struct{} // has room for one
	mu       sync.Mutex
	ranks    []int // guarded by mu; those that Gone has not returned yet, each once
}

// Survives reports whether the launcher has said that the job goes on without ranks that fail.
func (g *gone) Survives() bool { return g.survives }

// Notices says that Gone has more to return.
func (g *gone) Notices() <-chan struct{} { return g.wake }

// Gone returns ranks that have ended, or call this one, since it was called last.
func (g *gone) Gone() []int {
	g.mu.Lock()
	defer g.mu.Unlock()
	some := g.ranks
	g.ranks = nil
	return some
}

// heard takes a line that tells of the end of a rank, or its call, in a job of so many. It reports whether the line was
// one.
func (g *gone) heard(l line, size int) bool {
	rank, err := l.number("rank")
	if err != nil || rank < 0 || rank >= size {
		return false
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if !slices.Contains(g.ranks, rank) {
		g.ranks = append(g.ranks, rank)
	}
	select {
	case g.wake <- struct{}{}:
	default:
	}
	return true
}
