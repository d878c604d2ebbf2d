package tcp

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gorun-mpi/mpi/transport"
)

// opens a port on 127.0.0.1 and handles connections by handle, which owns them.
func opens(t *testing.T, handle func(net.Conn)) netip.AddrPort {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			wg.Go(func() { handle(conn) })
		}
	})
	t.Cleanup(func() {
		ln.Close()
		wg.Wait()
	})
	return ln.Addr().(*net.TCPAddr).AddrPort()
}

// refuses is a port that no process listens on, and that no other one can take meanwhile.
func refuses(t *testing.T) netip.AddrPort {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	local := netip.MustParseAddr("127.0.0.1")
	if err := unix.Bind(fd, &unix.SockaddrInet4{Addr: local.As4()}); err != nil {
		t.Fatal(err)
	}
	at, err := unix.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	return netip.AddrPortFrom(local, uint16(at.(*unix.SockaddrInet4).Port))
}

// stalls takes connections, says nothing, and closes them when the other side does.
func stalls(conn net.Conn) {
	var b [64]byte
	for {
		if _, err := conn.Read(b[:]); err != nil {
			conn.Close()
			return
		}
	}
}

func dialAll(ctx context.Context, d *handshaker, peer int, to ...netip.AddrPort) (*handshakeResult, error) {
	token := newToken()
	return dialAny(ctx, to, 0, func(ctx context.Context, conn net.Conn) (*handshakeResult, error) {
		return d.dial(ctx, conn, token, peer, history{})
	})
}

func TestDialAny(t *testing.T) {
	a := rank(2)
	got := make(chan *handshakeResult, 8)
	good := opens(t, func(conn net.Conn) {
		if r, err := a.accept(conn); err == nil {
			got <- r
		}
	})
	stuck, rubbish := opens(t, stalls), opens(t, func(conn net.Conn) {
		conn.Write([]byte("220 mail ready, and more words than a challenge has\r\n"))
		stalls(conn)
	})
	closed := refuses(t)
	for name, to := range map[string][]netip.AddrPort{
		"first":                        {good, stuck},
		"behind one that refuses":      {closed, good},
		"behind one that stalls":       {stuck, stuck, good},
		"behind one that is no rank":   {rubbish, good},
		"three good ones, two are not": {closed, stuck, good, good, rubbish, good},
	} {
		d := rank(1)
		d.Patience = time.Hour // so that only the winner can end those that stall
		r, err := dialAll(context.Background(), d, 2, to...)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		other := <-got
		talk(t, r, other)
		r.conn.Close()
		other.conn.Close()
		if len(got) > 0 {
			t.Errorf("%s: two connections", name)
		}
	}
}

// A verdict that is no acceptance is an answer too: no other address is asked.
func TestDialAnyCode(t *testing.T) {
	a := rank(2)
	a.admit = func(int, history) code { return crossing }
	r, err := dialAll(context.Background(), rank(1), 2, opens(t, func(conn net.Conn) { a.accept(conn) }), refuses(t))
	if err != nil || r.code != crossing || r.conn != nil {
		t.Errorf("%+v, %v", r, err)
	}
}

func TestDialAnyFails(t *testing.T) {
	closed, stuck := refuses(t), opens(t, stalls)
	other := rank(2)
	other.Secret = secret("another secret, as long")
	intruder := opens(t, func(conn net.Conn) { other.accept(conn) })
	none := netip.MustParseAddrPort("[100::1]:4711") // discard-only: mostly there is no way to it
	for _, tc := range []struct {
		name          string
		to            []netip.AddrPort
		gone, timeout bool
		says          []string
	}{
		{"all refuse", []netip.AddrPort{closed, closed}, true, false,
			[]string{closed.String() + ": connection refused; " + closed.String() + ": connection refused"}},
		{"one stalls", []netip.AddrPort{closed, stuck}, false, true,
			[]string{closed.String() + ": connection refused", stuck.String() + ": no answer in 200ms"}},
		{"another secret", []netip.AddrPort{intruder, closed}, false, false,
			[]string{intruder.String() + ": closed the connection: it is of another job or has another secret"}},
		{"no address", nil, false, false, []string{"no address"}},
	} {
		d := rank(1)
		if tc.timeout {
			d.Patience = 200 * time.Millisecond
		}
		r, err := dialAll(context.Background(), d, 2, tc.to...)
		if err == nil {
			t.Errorf("%s: %+v", tc.name, r)
			continue
		}
		gone, timeout := errors.Is(err, transport.ErrPeerGone), errors.Is(err, transport.ErrTimeout)
		if gone != tc.gone || timeout != tc.timeout {
			t.Errorf("%s: %v: gone %v, timeout %v", tc.name, err, gone, timeout)
		}
		for _, says := range tc.says {
			if !strings.Contains(err.Error(), says) {
				t.Errorf("%s: %v; should say %q", tc.name, err, says)
			}
		}
	}
	// No way at all says nothing about the peer, but one that refuses does.
	_, err := dialAll(context.Background(), rank(1), 2, none)
	if errors.Is(err, syscall.ENETUNREACH) && errors.Is(err, transport.ErrPeerGone) {
		t.Error("no way, and the peer is said to be gone:", err)
	}
}

// The errors of a dialError by themselves: those that cannot be had on one host.
func TestDialError(t *testing.T) {
	to := netip.MustParseAddrPort("10.77.0.2:4711")
	op := func(errno syscall.Errno) error { return &net.OpError{Op: "dial", Net: "tcp", Err: errno} }
	for _, tc := range []struct {
		errs          []error
		gone, timeout bool
		says          string
	}{
		{[]error{op(syscall.ECONNREFUSED), op(syscall.ENETUNREACH)}, true, false,
			"10.77.0.2:4711: connection refused; 10.77.0.2:4711: network is unreachable"},
		{[]error{op(syscall.ENETUNREACH)}, false, false, "network is unreachable"},
		{[]error{op(syscall.ECONNREFUSED), op(syscall.EHOSTUNREACH)}, false, true, "no route to host"},
		{[]error{op(syscall.ETIMEDOUT)}, false, true, "no answer in 5s"},
	} {
		e := &dialError{}
		for _, err := range tc.errs {
			e.failed = append(e.failed, attempt{to: to, err: err, took: 5*time.Second + time.Millisecond})
		}
		gone, timeout := errors.Is(e, transport.ErrPeerGone), errors.Is(e, transport.ErrTimeout)
		if gone != tc.gone || timeout != tc.timeout || !strings.Contains(e.Error(), tc.says) {
			t.Errorf("%v: gone %v, timeout %v; should say %q", e, gone, timeout, tc.says)
		}
	}
}

// The caller's context ends everything, and the error says which way it ended.
func TestDialAnyContext(t *testing.T) {
	stuck := opens(t, stalls)
	for limit := 150 * time.Millisecond; ; limit *= 5 {
		ctx, cancel := context.WithTimeout(context.Background(), limit)
		_, err := dialAll(ctx, rank(1), 2, stuck, stuck)
		cancel()
		if strings.Contains(err.Error(), "no answer in ") && errors.Is(err, transport.ErrTimeout) &&
			errors.Is(err, context.DeadlineExceeded) {
			break
		}
		if limit > hang { // or the machine stood still before anything was dialled
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	reached := opens(t, func(conn net.Conn) { cancel(); stalls(conn) })
	// so many that the context ends before the last is tried
	_, err := dialAll(ctx, rank(1), 2, slices.Repeat([]netip.AddrPort{reached}, 1000)...)
	if errors.Is(err, transport.ErrTimeout) || !errors.Is(err, context.Canceled) ||
		!strings.Contains(err.Error(), "given up after") || !strings.Contains(err.Error(), "not tried any more") {
		t.Error(err)
	}
}

// An acceptor that is crowded closes at once; the dialler comes back.
func TestDialAnyTurnedAway(t *testing.T) {
	a := rank(2)
	var visits atomic.Int32
	got := make(chan *handshakeResult, 1)
	to := opens(t, func(conn net.Conn) {
		if visits.Add(1) < 3 {
			conn.(*net.TCPConn).SetLinger(0)
			conn.Close()
			return
		}
		if r, err := a.accept(conn); err == nil {
			got <- r
		}
	})
	r, err := dialAll(context.Background(), rank(1), 2, to)
	if err != nil {
		t.Fatal(err)
	}
	r.conn.Close()
	(<-got).conn.Close()
	always := opens(t, func(conn net.Conn) { conn.Close() })
	_, err = dialAll(context.Background(), rank(1), 2, always)
	if !strings.Contains(err.Error(), "closed the connection") ||
		errors.Is(err, transport.ErrPeerGone) || errors.Is(err, transport.ErrTimeout) {
		t.Error(err)
	}
}
