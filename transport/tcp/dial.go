package tcp

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/gorun-mpi/mpi/internal/auth"
	"github.com/gorun-mpi/mpi/transport"
)

// attempt is why one address has failed.
type attempt struct {
	to   netip.AddrPort
	err  error
	took time.Duration
	own  bool // this host has the address too, and the peer is on another host
}

// handshakeFunc does the dialler's side of a handshake on a connection, which it owns.
type handshakeFunc func(context.Context, net.Conn) (*handshakeResult, error)

// dialAny tries the addresses as auth.Race does. The first whose handshake comes to an end wins; the others are closed
// before it returns. patience is how long each may take to be connected; 0: 5 s. The addresses are numbers: no name is
// resolved.
func dialAny(ctx context.Context, to []netip.AddrPort, patience time.Duration,
	shake handshakeFunc) (*handshakeResult, error) {
	if patience <= 0 {
		patience = 5 * time.Second
	}
	failed := make([]attempt, len(to))
	res, won, errs := auth.Race(ctx, len(to), func(trying context.Context, i int) (*handshakeResult, error) {
		r, a := try(trying, to[i], patience, shake)
		failed[i] = a
		return r, a.err
	}, (*handshakeResult).close)
	if won {
		return res, nil
	}
	return nil, &dialError{failed[:len(errs)], to[len(errs):], ctx.Err()}
}

// turnedAwayFor is how long an address is tried again that closes the connection: too many may be open there. Another
// secret looks the same, since an acceptor says nothing to an intruder.
const turnedAwayFor = 600 * time.Millisecond

func try(ctx context.Context, to netip.AddrPort, patience time.Duration,
	shake handshakeFunc) (r *handshakeResult, a attempt) {
	start := time.Now()
	err := auth.Retry(ctx, turnedAwayFor, func() (err error) {
		r, err = tryOnce(ctx, to, patience, shake)
		return err
	})
	return r, attempt{to: to, err: err, took: time.Since(start)}
}

func tryOnce(ctx context.Context, to netip.AddrPort, patience time.Duration,
	shake handshakeFunc) (*handshakeResult, error) {
	// keep (watch.go) sets keep-alive for connections that stay.
	dialer := net.Dialer{Timeout: patience, KeepAlive: -1}
	dialer.SetMultipathTCP(false)
	conn, err := dialer.DialContext(ctx, "tcp", to.String())
	if err != nil {
		return nil, auth.TurnedAway(err)
	}
	return shake(ctx, conn)
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
		return "it has published no address that can be reached from here (GORUN_TCP_IF chooses the addresses)"
	}
	return strings.Join(s, "; ") + e.hint()
}

// hint is what to look at where an address gave no answer, or a refusal.
func (e *dialError) hint() string {
	blocked := func(a attempt) bool {
		return !a.own && (e.silent(a) || refused(a) || errors.Is(a.err, syscall.EACCES) || errors.Is(a.err, syscall.EPERM))
	}
	if !slices.ContainsFunc(e.failed, blocked) {
		return ""
	}
	return " (a firewall looks the same: gorun doctor tries the ports between hosts, GORUN_TCP_PORTS and GORUN_TCP_IF " +
		"choose ports and addresses)"
}

// uncalledError is a dialError after the peer, which lives, was called and has not come either.
type uncalledError struct{ *dialError }

func (e *uncalledError) Error() string {
	return e.dialError.Error() + "; the rank was told to connect by itself, and its connection does not come"
}

// Is is for transport.ErrTimeout: the peer is not known to be gone.
func (e *uncalledError) Is(target error) bool { return target == transport.ErrTimeout }

func (e *dialError) words(a attempt) string {
	var errno syscall.Errno
	var g *auth.Error
	took := a.took.Round(time.Millisecond)
	if took > time.Second {
		took = a.took.Round(100 * time.Millisecond)
	}
	switch {
	case a.own:
		return "an address of this host too, which does not lead to the other one (GORUN_TCP_IF=!" + a.to.Addr().String() +
			" leaves it out)"
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

// silent reports whether there was no answer to a. A host that does not answer ARP is unreachable, which is the same.
func (e *dialError) silent(a attempt) bool {
	var timeout net.Error
	return errors.Is(a.err, transport.ErrTimeout) || errors.Is(a.err, os.ErrDeadlineExceeded) ||
		errors.Is(a.err, syscall.EHOSTUNREACH) || errors.As(a.err, &timeout) && timeout.Timeout() ||
		e.ctx == context.DeadlineExceeded && !answered(a.err)
}

// answered reports whether the failure says something about the peer, and is not only that a step did not come to its
// end.
func answered(err error) bool {
	var errno syscall.Errno
	var g *auth.Error
	return errors.As(err, &errno) || errors.As(err, &g)
}

// noDescriptor reports whether err is dialAny's and this process had no descriptor for an address.
func noDescriptor(err error) bool {
	var e *dialError
	return errors.As(err, &e) && slices.ContainsFunc(e.failed, func(a attempt) bool { return outOfDescriptors(a.err) })
}

// outOfDescriptors reports whether this process or the host has no free descriptor, which may change.
func outOfDescriptors(err error) bool {
	return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE)
}

// reached reports whether an address has led to a process that answered.
func (e *dialError) reached() bool {
	return slices.ContainsFunc(e.failed, func(a attempt) bool { return !a.own && auth.Why(a.err) != 0 })
}

func refused(a attempt) bool { return errors.Is(a.err, syscall.ECONNREFUSED) }

// noWay reports whether this host has no route to there at all, for example because it has no IPv6, or is itself there.
func noWay(a attempt) bool {
	if a.own {
		return true
	}
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

// allRefused reports whether every address that there is a way to refused.
func (e *dialError) allRefused() bool {
	n := 0
	for _, a := range e.failed {
		switch {
		case noWay(a):
		case refused(a):
			n++
		default:
			return false
		}
	}
	return n > 0 && len(e.untried) == 0
}
