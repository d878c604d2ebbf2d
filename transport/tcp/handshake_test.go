package tcp

import (
	"bytes"
	"context"
	"errors"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/gorun-mpi/mpi/internal/auth"
)

// What the handshake carries: counts, cards and codes, with TLS and without.
func TestHandshake(t *testing.T) {
	for _, secure := range []bool{false, true} {
		for _, c := range []code{accepted, crossing, mismatch, closing} {
			d, a := rank(1), rank(2)
			d.TLS, a.TLS = secure, secure
			d.introduce([]byte("card of 1"))
			a.introduce(bytes.Repeat([]byte("x"), cardMax))
			a.admit = func(peer int, of history) code {
				if peer != 1 || of != testHistory {
					t.Errorf("judge was asked about rank %d, %+v", peer, of)
				}
				return c
			}
			a.dropped = func(int) { t.Error("dropped") }
			dr, ar, derr, aerr := both(t, d, a)
			if derr != nil || aerr != nil {
				t.Fatal(c, derr, aerr)
			}
			if dr.peer != 2 || !dr.dialed || dr.code != c || len(dr.card) != cardMax {
				t.Errorf("%v: the dialler got %+v", c, dr)
			}
			if ar.peer != 1 || ar.dialed || ar.code != c || string(ar.card) != "card of 1" {
				t.Errorf("%v: the acceptor got %+v", c, ar)
			}
			open := c == accepted
			hasTLS := dr.tls != nil && dr.wire != nil && ar.tls != nil && ar.wire != nil
			if open != (dr.conn != nil) || open != (ar.conn != nil) || (open && secure) != hasTLS {
				t.Errorf("%v, TLS %v: %+v and %+v", c, secure, dr, ar)
			}
			if open {
				talk(t, dr, ar)
				talk(t, ar, dr)
			}
		}
	}
}

// A rank of the job that says nonsense in its payload is refused by the other side, in both roles.
func TestHandshakeNonsense(t *testing.T) {
	for _, b := range [][]byte{nil, make([]byte, historySize-1)} {
		dc, ac := socketPair(t)
		go func() {
			if s, err := rank(1).Dial(context.Background(), dc, 2); err == nil {
				s.Confirm(b)
			}
		}()
		if _, err := rank(2).accept(ac); !errors.Is(err, errPayload) {
			t.Errorf("a confirmation of %d bytes: %v", len(b), err)
		}
	}
	for _, b := range [][]byte{nil, {0}, {byte(closing) + 1}, {255, 1}} {
		dc, ac := socketPair(t)
		go func() {
			if s, err := rank(2).Accept(ac); err == nil {
				s.Answer(b)
			}
		}()
		token := newToken()
		_, err := rank(1).dial(context.Background(), dc, token, 2, history{})
		if !errors.Is(err, errPayload) || len(token) != 1 {
			t.Errorf("answer %v: %v; the token was not given back", b, err)
		}
	}
}

// Of the connections that one call dials, one at a time is between proof and answer, and none proves after an answer.
func TestToken(t *testing.T) {
	d, a := rank(1), rank(2)
	judging, decide := make(chan struct{}, 2), make(chan struct{})
	a.admit = func(int, history) code {
		judging <- struct{}{}
		<-decide
		return accepted
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	token := newToken()
	results := make(chan error, 2)
	var acceptors sync.WaitGroup
	for range 2 {
		dc, ac := socketPair(t)
		acceptors.Go(func() { a.accept(ac) })
		go func() {
			_, err := d.dial(ctx, dc, token, 2, history{})
			results <- err
		}()
	}
	<-judging
	select {
	case <-judging:
		t.Error("both have proved themselves")
	case <-time.After(50 * time.Millisecond):
	}
	close(decide)
	if err := <-results; err != nil {
		t.Error(err)
	}
	cancel()
	if err := <-results; !errors.Is(err, context.Canceled) {
		t.Error("the second:", err)
	}
	acceptors.Wait()
	if len(judging) > 0 {
		t.Error("the second proved itself after the first had been accepted")
	}
}

// A connection that breaks between the answer and its delivery is reported to the side that has accepted it.
func TestDropped(t *testing.T) {
	a, d := rank(2), rank(1)
	a.TLS, d.TLS = true, true
	dropped := make(chan int, 1)
	a.dropped = func(peer int) { dropped <- peer }
	dc, ac := socketPair(t)
	done := make(chan error, 1)
	go func() {
		_, err := a.accept(ac)
		done <- err
	}()
	s, err := d.Dial(context.Background(), dc, 2)
	if err == nil {
		err = s.Confirm(testHistory.encode())
	}
	if err != nil {
		t.Fatal(err)
	}
	dc.Close() // TLS does not begin
	if err := <-done; auth.Why(err) != auth.Broken || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the acceptor: %v", err)
	}
	if len(dropped) != 1 || <-dropped != 1 {
		t.Error("not reported")
	}
}
