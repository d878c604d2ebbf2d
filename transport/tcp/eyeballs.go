package tcp

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/gorun-mpi/mpi/transport"
)

// stagger is how long an address is given before the next one is tried beside it (RFC 8305 says 250 ms for the
// internet; ranks are nearer to each other).
const stagger = 100 * time.Millisecond

// attempt is what became of one address.
type attempt struct {
	to   netip.AddrPort
	gr   *greeted // nil: it failed
	err  error
	took time.Duration
}

// dialAny tries the addresses in their order, each a while after the one before or at once if that has failed. The first
// whose handshake comes to an end wins; the others are closed, and all is quiet when it returns. patience is how long
// each may take to be connected; 0: stepLimit. The addresses are numbers: no name is resolved.
func dialAny(ctx context.Context, to []netip.AddrPort, patience time.Duration, greet func(context.Context, net.Conn) (*greeted, error)) (*greeted, error) {
	if patience <= 0 {
		patience = stepLimit
	}
	trying, cancel := context.WithCancel(ctx)
	defer cancel()
	results := make(chan attempt)
	var failed []attempt
	next, running := 0, 0
	start := func() {
		at := to[next]
		next++
		running++
		go func() { results <- try(trying, at, patience, greet) }()
	}
	wait := time.NewTimer(0)
	defer wait.Stop()
	var won *greeted
	for running > 0 || won == nil && next < len(to) && ctx.Err() == nil {
		// Nothing more is begun once somebody has won or the caller has given up.
		hurry := wait.C
		if won != nil || next == len(to) || ctx.Err() != nil {
			hurry = nil
		}
		select {
		case <-hurry:
			start()
			wait.Reset(stagger)
		case a := <-results:
			running--
			switch {
			case a.gr == nil:
				failed = append(failed, a)
				wait.Reset(0)
			case won == nil:
				won = a.gr
				cancel()
			case a.gr.conn != nil:
				a.gr.conn.Close()
			}
		}
	}
	if won != nil {
		return won, nil
	}
	return nil, &dialError{failed, to[next:], ctx.Err()}
}

// turnedAwayMax is how often an address is tried that closes the connection: its porter may be crowded by strangers.
// Another secret looks the same, since a stranger is told nothing.
const turnedAwayMax = 6

func try(ctx context.Context, to netip.AddrPort, patience time.Duration, greet func(context.Context, net.Conn) (*greeted, error)) attempt {
	start := time.Now()
	pause := 25 * time.Millisecond
	for n := 1; ; n++ {
		gr, err := tryOnce(ctx, to, patience, greet)
		if err == nil || n == turnedAwayMax || !errors.Is(err, errTurnedAway) {
			return attempt{to, gr, err, time.Since(start)}
		}
		select {
		case <-time.After(pause):
			pause *= 2
		case <-ctx.Done():
			return attempt{to, nil, err, time.Since(start)}
		}
	}
}

func tryOnce(ctx context.Context, to netip.AddrPort, patience time.Duration, greet func(context.Context, net.Conn) (*greeted, error)) (*greeted, error) {
	// keep (watch.go) sets keep-alive for connections that stay.
	dialer := net.Dialer{Timeout: patience, KeepAlive: -1}
	dialer.SetMultipathTCP(false)
	conn, err := dialer.DialContext(ctx, "tcp", to.String())
	if err != nil && hungUp(err) {
		return nil, turnedAway(err)
	}
	if err != nil {
		return nil, err
	}
	return greet(ctx, conn)
}

// dialError says what became of each address. It is transport.ErrTimeout if one did not answer, and
// transport.ErrPeerGone if all refused: then the host is there, and the rank is not.
type dialError struct {
	failed  []attempt
	untried []netip.AddrPort
	ctx     error // of the caller's context, when all had failed
}

func (e *dialError) Error() string {
	var s []string
	for _, a := range e.failed {
		s = append(s, fmt.Sprintf("%v: %s", a.to, e.words(a)))
	}
	for _, to := range e.untried {
		s = append(s, fmt.Sprintf("%v: not tried any more", to))
	}
	if s == nil {
		return "it has published no address that can be reached from here"
	}
	return strings.Join(s, "; ")
}

func (e *dialError) words(a attempt) string {
	var errno syscall.Errno
	var g *greetError
	took := a.took.Round(time.Millisecond)
	if took > time.Second {
		took = a.took.Round(100 * time.Millisecond)
	}
	switch {
	case errors.As(a.err, &g):
		return g.Error()
	case e.ctx == context.Canceled && errors.Is(a.err, context.Canceled):
		return fmt.Sprintf("given up after %v", took)
	case errors.As(a.err, &errno) && errno != syscall.ETIMEDOUT:
		return errno.Error()
	case e.silent(a):
		return fmt.Sprintf("no answer in %v", took)
	}
	return a.err.Error()
}

// silent: nobody answered a. A host that does not answer ARP is unreachable, which is the same.
func (e *dialError) silent(a attempt) bool {
	var timeout net.Error
	return errors.Is(a.err, transport.ErrTimeout) || errors.Is(a.err, os.ErrDeadlineExceeded) ||
		errors.Is(a.err, syscall.EHOSTUNREACH) || errors.As(a.err, &timeout) && timeout.Timeout() ||
		e.ctx == context.DeadlineExceeded && !answered(a.err)
}

// answered: the failure says something about the peer, and is not only that of a step that did not come to its end.
func answered(err error) bool {
	var errno syscall.Errno
	var g *greetError
	return errors.As(err, &errno) || errors.As(err, &g)
}

func refused(a attempt) bool { return errors.Is(a.err, syscall.ECONNREFUSED) }

// noWay: this host has no route to there at all, for example because it has no IPv6.
func noWay(a attempt) bool {
	for _, errno := range []syscall.Errno{syscall.ENETUNREACH, syscall.EADDRNOTAVAIL, syscall.EAFNOSUPPORT} {
		if errors.Is(a.err, errno) {
			return true
		}
	}
	return false
}

// Is is for transport.ErrTimeout and transport.ErrPeerGone.
func (e *dialError) Is(target error) bool {
	switch target {
	case transport.ErrTimeout:
		for _, a := range e.failed {
			if e.silent(a) {
				return true
			}
		}
	case transport.ErrPeerGone:
		return e.allRefused()
	}
	return false
}

// Unwrap is the caller's own reason to stop, if there was one.
func (e *dialError) Unwrap() error { return e.ctx }

func (e *dialError) allRefused() bool {
	n := 0
	for _, a := range e.failed {
		switch {
		case refused(a):
			n++
		case !noWay(a):
			return false
		}
	}
	return n > 0 && len(e.untried) == 0
}

// allRefused reports whether err is dialAny's, and every address that there is a way to refused.
func allRefused(err error) bool {
	var e *dialError
	return errors.As(err, &e) && e.allRefused()
}
