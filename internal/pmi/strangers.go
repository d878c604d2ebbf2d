package pmi

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"time"
)

const (
	// helloTimeout is from accept to the end of initack, or of the proof where one is required.
	helloTimeout = 10 * time.Second
	// minStrangers connections at least may be open that have not said or proved who they are, plus two per rank.
	minStrangers = 256
	// lobbyLines is what somebody may say before the proof; our client needs 5.
	lobbyLines = 16
)

// Strangers counts the connections of ServeListener that came to nothing.
type Strangers struct {
	Refused int // said something wrong, proved nothing, or went away
	Late    int // did not say or prove in time who they are
	Evicted int // made room for others while as many were open as may be
}

// Strangers is the count so far.
func (s *Server) Strangers() Strangers {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.counts
}

// stranger is a connection whose rank is not known, or not proved where it must be.
type stranger struct {
	conn    net.Conn
	from    netip.Addr
	evicted bool // guarded by Server.mu
}

// lobby is where strangers wait; guarded by Server.mu.
type lobby struct {
	waiting []*stranger        // in order of arrival
	from    map[netip.Addr]int // how many of waiting, by address; never 0
}

func (b *lobby) add(st *stranger) {
	b.waiting = append(b.waiting, st)
	b.from[st.from]++
}

func (b *lobby) remove(st *stranger) {
	for i, other := range b.waiting {
		if other == st {
			b.waiting = append(b.waiting[:i], b.waiting[i+1:]...)
			if b.from[st.from]--; b.from[st.from] == 0 {
				delete(b.from, st.from)
			}
			return
		}
	}
}

// victim is the oldest of the address that most strangers are from: one host that floods the port pushes out its own
// connections, and not those of the ranks of other hosts.
func (b *lobby) victim() *stranger {
	most := 0
	for _, n := range b.from {
		most = max(most, n)
	}
	for _, st := range b.waiting {
		if b.from[st.from] == most {
			return st
		}
	}
	return nil
}

// evict closes one stranger's connection. Called with mu held.
func (s *Server) evict() {
	if st := s.lobby.victim(); st != nil {
		st.evicted = true
		st.conn.Close()
		s.lobby.remove(st)
		s.counts.Evicted++
	}
}

// ServeListener accepts connections of ranks that were given PMI_PORT and PMI_ID, until the listener fails or
// is closed. Anybody can dial a port: such a connection is told the job's secret only after it has proved that it
// knows Options.Key, and with Options.RequireProof nothing but the names and limits of the job before.
func (s *Server) ServeListener(ln net.Listener) error {
	var all sync.WaitGroup
	defer all.Wait()
	for {
		conn, err := ln.Accept()
		switch {
		case err == nil:
			watchPeer(conn, s.opts.PeerTimeout)
			all.Go(func() { s.serveStranger(conn) })
		case passing(err):
			s.mu.Lock()
			s.evict() // out of descriptors, perhaps because of strangers
			s.mu.Unlock()
			time.Sleep(5 * time.Millisecond)
		default:
			return err
		}
	}
}

// passing errors of accept are not the listener's end.
func passing(err error) bool {
	for _, e := range []error{syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM, syscall.ECONNABORTED} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

func (s *Server) admit(conn net.Conn) *stranger {
	st := &stranger{conn: conn}
	if at, ok := conn.RemoteAddr().(*net.TCPAddr); ok {
		st.from = at.AddrPort().Addr().Unmap()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	if len(s.lobby.waiting) >= minStrangers+2*s.size {
		s.evict()
	}
	s.lobby.add(st)
	return st
}

func (s *Server) serveStranger(conn net.Conn) {
	defer conn.Close()
	st := s.admit(conn)
	if st == nil {
		return
	}
	c := &serverConn{s: s, conn: conn}
	c.in.r = conn
	conn.SetDeadline(time.Now().Add(s.patience))
	err := c.initack()
	if err == nil && s.opts.RequireProof {
		err = c.awaitProof()
	}
	s.mu.Lock()
	s.lobby.remove(st) // from here on it is not evicted
	evicted := st.evicted
	s.mu.Unlock()
	if err == nil && evicted {
		err = net.ErrClosed
	}
	if err == nil {
		err = s.enter(c, c.rank)
		if err != nil && c.trust != nil {
			c.answer(refusal("gorun_trusted", escape(err.Error())))
		}
	}
	if err != nil {
		s.turnedAway(conn, evicted, err)
		return
	}
	conn.SetDeadline(time.Time{})
	s.attend(c)
}

// turnedAway counts, and tells the launcher of the first few: strangers may come in any number.
func (s *Server) turnedAway(conn net.Conn, evicted bool, err error) {
	var timeout net.Error
	s.mu.Lock()
	switch {
	case evicted: // counted already
	case errors.As(err, &timeout) && timeout.Timeout():
		s.counts.Late++
		err = fmt.Errorf("no word or no proof of who it is within %v", s.patience)
	default:
		s.counts.Refused++
	}
	s.mu.Unlock()
	if !evicted && s.strange.Add(1) <= maxStrange {
		s.events <- Event{Kind: EventGarbage, Rank: -1, Err: fmt.Errorf("a connection from %v: %w", conn.RemoteAddr(), err)}
	}
}

// initack learns which rank it is said to be.
func (c *serverConn) initack() error {
	b, err := c.in.next()
	if err != nil {
		return err
	}
	l, err := parseLine(b)
	if err != nil {
		return err
	}
	if l.cmd != "initack" {
		return fmt.Errorf("%.40q came where initack was due", l.cmd)
	}
	id, err := l.number("pmiid")
	if err != nil {
		return err
	}
	if c.rank, err = c.s.rankOf(id); err != nil {
		return err
	}
	_, err = fmt.Fprintf(c.conn, "cmd=initack rc=0\ncmd=set size=%d\ncmd=set rank=%d\ncmd=set debug=0\n", c.s.size, c.rank)
	return err
}

// awaitProof answers what a client must ask before it can prove who it is, and nothing else. It returns nil when it
// has; the answer to the proof is then in c.trust.
func (c *serverConn) awaitProof() error {
	for range lobbyLines {
		l, err := c.next()
		if err != nil {
			return err
		}
		if err := c.serveUnproved(l); err != nil || c.trust != nil {
			return err
		}
	}
	return fmt.Errorf("%d commands and no proof", lobbyLines)
}

func (c *serverConn) serveUnproved(l line) error {
	switch {
	case l.multi:
	case l.cmd == "init", l.cmd == "get_maxes", l.cmd == "get_my_kvsname", l.cmd == "get_appnum",
		l.cmd == "get_universe_size", l.cmd == "gorun_hello", l.cmd == "gorun_proof":
		return c.serve(l)
	}
	// For people: a stock MPI program shows this.
	c.answer(refusal(replyName(l.cmd), escape("this job is only for programs that prove who they are by "+EnvKey+
		": start the program by the launcher itself, and build it with the package mpi of this project")))
	return fmt.Errorf("%.40q came where a proof was due", l.cmd)
}
