package pmi

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
)

// A rank that cannot dial another one, since a firewall stands in between, has that one dial: the way back may be open.
// It asks the launcher, by
//
//	cmd=gorun_call to=N
//
// and the launcher sends to rank N, if that has said call=1 in its gorun_hello, a line
//
//	cmd=gorun_called rank=M
//
// at any time, between replies. The reply to the first has rc=0 when the other rank is told, and rc=1 where that has
// ended.
const (
	callCommand   = "gorun_call"
	calledCommand = "gorun_called"
	hasEnded      = "the_rank_has_ended"
)

// ErrEnded is returned by Call for a rank that has ended, as far as the launcher knows.
var ErrEnded = errors.New("the launcher says that the rank has ended")

// Call has another rank make a connection to this one. It returns when the launcher has passed that on, which says
// nothing about the connection. The error wraps errors.ErrUnsupported where the launcher or the other rank cannot.
func (c *Client) Call(ctx context.Context, rank int) error {
	if !c.ours {
		return fmt.Errorf("calling rank %d by launcher %s: %w", rank, c.launcher, errors.ErrUnsupported)
	}
	reply, err := c.request(ctx, replyName(callCommand), newLine(callCommand, "to", strconv.Itoa(rank)))
	if err != nil {
		return err
	}
	msg, _ := reply.get("msg")
	switch {
	case reply.rc() == 0:
		return nil
	case msg == hasEnded:
		return ErrEnded
	}
	return c.stepError(callCommand, fmt.Errorf("%w: %.80q", errors.ErrUnsupported, msg))
}

// called passes on the call of a rank that is served here.
func (c *serverConn) call(l line) line {
	to, _ := l.get("to")
	l = newLine(callCommand, "to", to, "from", strconv.Itoa(c.rank)) // a rank speaks for itself alone
	s := c.s
	s.mu.Lock()
	rank, err := l.number("to")
	here := err == nil && s.conns[rank] != nil
	if s.opts.Above == nil || here {
		defer s.mu.Unlock()
		return s.pass(l)
	}
	s.mu.Unlock()
	return s.askAndWait(l)
}

// pass tells the rank that is called, or the servers below, which one of serves it. mu is held.
func (s *Server) pass(l line) line {
	reply := replyName(callCommand)
	to, err1 := l.number("to")
	from, err2 := l.number("from")
	if err1 != nil || err2 != nil || to < 0 || to >= s.size || from < 0 || from >= s.size || to == from {
		return errorReply(reply, "no_such_rank")
	}
	c := s.conns[to]
	switch {
	case s.reported[to] || slices.Contains(s.ended, to), c != nil && c.left:
		return newLine(reply, "rc", "1", "msg", hasEnded)
	case c != nil && !c.called(from):
		return errorReply(reply, "the_rank_takes_no_calls")
	case c == nil:
		for _, b := range s.below {
			b.down.Call(to, from)
		}
	}
	return newLine(reply, "rc", "0", "msg", "success")
}

// Called tells a rank that is served here, or the servers below, that another one calls it.
func (s *Server) Called(to, from int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pass(newLine(callCommand, "to", strconv.Itoa(to), "from", strconv.Itoa(from)))
}

// Ended notes that a rank which another server serves has ended: it is not called any more.
func (s *Server) Ended(rank int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reported[rank] = true
}

// called notes a call for the writer. It reports whether the rank takes calls. Server.mu is held.
func (c *serverConn) called(from int) bool {
	if !c.takesCalls {
		return false
	}
	if !slices.Contains(c.calls, from) {
		c.calls = append(c.calls, from)
	}
	select {
	case c.notices <- struct{}{}:
	default:
	}
	return true
}

// callLines are those of the calls that the rank has not been told of yet.
func (c *serverConn) callLines() (lines []byte) {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	for _, from := range c.calls {
		lines = append(lines, newLine(calledCommand, "rank", strconv.Itoa(from)).bytes()...)
	}
	c.calls = nil
	return lines
}
