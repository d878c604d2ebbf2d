package tcp

import (
	"context"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gorun-mpi/mpi/transport"
)

// Where two ranks have lost a connection both dial, and one of the dials may be heard at any time later: after the
// other has made a connection, and after that has been used. It does not end that connection; only a dial of a rank
// that has had it does.
func TestLateDial(t *testing.T) {
	for _, c := range []struct {
		name   string
		dialed bool // by rank 0, which judges
		late   history
		lost   history
	}{
		{"the judge has dialled", true, history{1, 1, 1, 0}, history{1, 1, 2, 1}},
		{"the peer has dialled", false, history{1, 1, 1, 0}, history{1, 1, 2, 0}},
	} {
		t.Run(c.name, func(t *testing.T) {
			a, b := newDevice(t, 0, 2), newDevice(t, 1, 2)
			defer a.Close()
			defer b.Close()
			s := connected(t, a, b, c.dialed)
			pkts := make([]transport.Packet, 4)
			until := func(what string, done func() bool) {
				for end := time.Now().Add(hang); !done(); time.Sleep(time.Millisecond) {
					if n := a.Poll(pkts); n > 0 || time.Now().After(end) {
						t.Fatalf("%s: %d packets, the first is %v: %v", what, n, pkts[0].Event, pkts[0].Err)
					}
				}
			}
			conn := s.conn.Load()
			judged := make(chan code, 1)
			var code code
			heard := func() bool {
				select {
				case code = <-judged:
					return true
				default:
					return false
				}
			}
			go func() { judged <- a.admit(1, c.late) }()
			if until("a late dial", heard); code != crossing || s.conn.Load() != conn {
				t.Errorf("a late dial: answer %v; the connection stands: %v", code, s.conn.Load() == conn)
			}
			go func() { judged <- a.admit(1, c.lost) }()
			if until("a dial after a loss", heard); s.conn.Load() == conn {
				t.Errorf("a dial after a loss: answer %v; the connection stands", code)
			}
		})
	}
}

// Two ranks may dial at one time, and the connection of one stand when the other has only begun. That dial does not say
// that its rank has had the connection, and lost it.
func TestDialsCross(t *testing.T) {
	a, b := newDevice(t, 0, 2), newDevice(t, 1, 2)
	defer a.Close()
	defer b.Close()
	to, err := parseAddress(a.Address())
	if err != nil {
		t.Fatal(err)
	}
	b.mu.Lock()
	s := b.session(0)
	s.address, s.known = to, true
	b.mu.Unlock()
	_, own, err := s.begin()
	if own == nil || err != nil {
		t.Fatal(own, err)
	}
	own.ctx = context.Background() // so that the other connection does not end it: it is on its way
	stands := connected(t, a, b, true)
	conn := stands.conn.Load()
	dialled := make(chan error, 1)
	go func() { dialled <- s.dial(context.Background(), own) }()
	var pkts [4]transport.Packet
	for done := false; !done; {
		select {
		case err = <-dialled:
			done = true
		default:
		}
		if n := a.Poll(pkts[:]); n > 0 {
			t.Fatal(pkts[0].Event, pkts[0].Err)
		}
	}
	if err != nil || stands.conn.Load() != conn {
		t.Errorf("%v; the first connection stands: %v", err, stands.conn.Load() == conn)
	}
}

// A dial may be heard so late that the connection which has overtaken it is lost too. What it says of frames is as old
// as it is: it is no mismatch, and no connection is made of it, since its dialler may not wait for one any more.
func TestDialAfterLoss(t *testing.T) {
	for _, dialed := range []bool{true, false} {
		t.Run(fmt.Sprintf("dialled by the judge %v", dialed), func(t *testing.T) {
			a, b := newDevice(t, 0, 2), newDevice(t, 1, 2)
			defer a.Close()
			defer b.Close()
			s := connected(t, a, b, dialed)
			lose(a, s, resumeState{true, 7, 7})
			for _, c := range []struct {
				what string
				of   history
				want code
			}{
				{"an old dial, and old counts", history{1, 1, 1, 0}, crossing},
				{"an old dial", history{7, 7, 1, 0}, crossing},
				{"a new dial", history{7, 7, 2, 1}, accepted},
			} {
				if got := a.admit(1, c.of); got != c.want {
					t.Errorf("%s: answer %v, want %v", c.what, got, c.want)
				}
			}
		})
	}
}

// A rank that does not poll for long is asked more than once to give a connection up. It gives that one up, and not the
// next.
func TestGiveUpIsForOneConnection(t *testing.T) {
	a, b := newDevice(t, 0, 2), newDevice(t, 1, 2)
	defer a.Close()
	defer b.Close()
	s := connected(t, a, b, false)
	if got := a.admit(1, history{1, 1, 2, 0}); got != crossing {
		t.Errorf("answer %v of a rank that does not poll, want %v", got, crossing)
	}
	lose(a, s, resumeState{})
	c := newDevice(t, 1, 2) // in place of b, which has a connection
	defer c.Close()
	if _, err := a.Connect(context.Background(), 1, c.Address()); err != nil {
		t.Fatal(err)
	}
	second := s.conn.Load()
	var pkts [4]transport.Packet
	for range 10 {
		if n := a.Poll(pkts[:]); n > 0 || s.conn.Load() != second {
			t.Fatalf("%d packets; the second connection stands: %v", n, s.conn.Load() == second)
		}
	}
}

// That a connection is lost, and what is known of it, other goroutines see at once: a dial of the peer may come between
// any two steps. One that saw the first without the second would be a mismatch, which ends the peer.
func TestLossIsSeenWhole(t *testing.T) {
	for _, bye := range []bool{false, true} {
		for range 5 {
			a, b := newDevice(t, 0, 2), newDevice(t, 1, 2)
			s := connected(t, a, b, false)
			s.bye = bye
			var over atomic.Bool
			var half atomic.Int32
			var look sync.WaitGroup
			for range 8 { // so that the lock is always wanted
				look.Go(func() {
					for !over.Load() {
						a.mu.Lock()
						if s.conn.Load() == nil && !s.held.broken && s.err == nil {
							half.Add(1)
						}
						a.mu.Unlock()
					}
				})
			}
			time.Sleep(time.Millisecond)
			var pkts [1]transport.Packet
			a.ended(s.conn.Load(), io.EOF, pkts[:])
			over.Store(true)
			if look.Wait(); half.Load() > 0 {
				t.Errorf("goodbye %v: seen %d times without a connection, and without its loss", bye, half.Load())
			}
			a.Close()
			b.Close()
		}
	}
}

// connected connects rank 0, a, with rank 1.
func connected(t *testing.T, a, b *Device, fromA bool) *session {
	t.Helper()
	from, to := b, a
	if fromA {
		from, to = a, b
	}
	if _, err := from.Connect(context.Background(), to.opt.Rank, to.Address()); err != nil {
		t.Fatal(err)
	}
	a.mu.Lock()
	s := a.session(1)
	a.mu.Unlock()
	for end := time.Now().Add(hang); s.conn.Load() == nil; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("no connection")
		}
	}
	return s
}

// lose takes the connection of s away, and leaves it in state h.
func lose(d *Device, s *session, h resumeState) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.discard(s.conn.Load())
	s.held = h
}
