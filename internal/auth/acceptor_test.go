package auth

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/gorun-mpi/mpi/internal/testkit/leak"
	"github.com/gorun-mpi/mpi/internal/testkit/proc"
)

// listening is an acceptor of rank 2 on 127.0.0.1, and what it has served and logged.
type listening struct {
	*Acceptor
	at    string
	came  chan end
	mu    sync.Mutex
	lines []string
}

func (l *listening) logged() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Join(l.lines, "\n")
}

func open(t *testing.T, h *Handshaker, change ...func(*Options)) *listening {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return openOn(t, ln, h, change...)
}

func openOn(t *testing.T, ln net.Listener, h *Handshaker, change ...func(*Options)) *listening {
	l := &listening{came: make(chan end, 64), at: ln.Addr().String()}
	opt := Options{Name: "test", Accept: h.Accept,
		Serve: func(s *Session) {
			e := end{Session: s}
			if e.err = s.Answer(nil); e.err == nil {
				e.Conn, e.err = s.Finish()
			}
			if e.err == nil {
				l.came <- e
			}
		},
		Log: func(msg string, args ...any) {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.lines = append(l.lines, fmt.Sprint(append([]any{msg}, args...)...))
		}}
	for _, f := range change {
		f(&opt)
	}
	l.Acceptor = Serve(ln, opt)
	t.Cleanup(l.Close)
	return l
}

// visit is a rank of the job that comes in, talks and goes.
func (l *listening) visit(t *testing.T) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), hang)
	defer cancel()
	var e end
	if err := Retry(ctx, hang, func() error {
		conn, err := net.Dial("tcp", l.at)
		if err != nil {
			return TurnedAway(err)
		}
		e = dial(ctx, rank(1), conn, 2, "")
		return e.err
	}); err != nil {
		return err
	}
	select {
	case other := <-l.came:
		talk(t, e.Conn, other.Conn)
		other.Conn.Close()
	case <-ctx.Done():
		t.Fatal("not served")
	}
	return e.Conn.Close()
}

// letsIn checks that a rank of the job still comes in.
func (l *listening) letsIn(t *testing.T) {
	t.Helper()
	if err := l.visit(t); err != nil {
		t.Fatalf("a rank of the job was kept out: %v\n%s", err, l.logged())
	}
}

func (l *listening) intruder(t testing.TB) *net.TCPConn {
	t.Helper()
	conn, err := net.Dial("tcp", l.at)
	if err != nil {
		t.Fatal(err)
	}
	conn.(*net.TCPConn).SetLinger(0) // so that the tests leave nothing in the kernel
	t.Cleanup(func() { conn.Close() })
	return conn.(*net.TCPConn)
}

// quiet reports whether no handshake is under way.
func (l *listening) quiet() bool {
	l.Acceptor.mu.Lock()
	defer l.Acceptor.mu.Unlock()
	return len(l.pending)+len(l.perHost)+len(l.served) == 0
}

func (l *listening) pendingNow() int {
	l.Acceptor.mu.Lock()
	defer l.Acceptor.mu.Unlock()
	return len(l.pending)
}

// An intruder of each kind: counted, logged with the reason, and the job goes on.
func TestIntruders(t *testing.T) {
	ours := record(t, rank(1), rank(2))
	for _, tc := range []struct {
		says  []byte
		why   Reason
		limit time.Duration
	}{
		{[]byte("GET / HTTP/1.1\r\n\r\n"), NotGorun, hang},
		{ours, unproved, hang},
		{record(t, rank(1), rank(3)), otherRank, hang},
		{nil, silent, hang},
		{ours[:40], slow, time.Second}, // the limit is for the rank that comes afterwards too
	} {
		if err := longer(tc.limit, func(limit time.Duration) error {
			l := open(t, rank(2, within(limit)))
			conn := l.intruder(t)
			conn.Write(tc.says)
			if tc.why == silent {
				conn.CloseWrite()
			}
			proc.Eventually(t, "a refusal", func() bool { return l.Refused() == 1 })
			if l.failed[tc.why].Load() != 1 {
				return fmt.Errorf("counted under another reason than %q: %s", words[tc.why], l.logged())
			}
			want := "test: 1 connection refused from 127.0.0.1: " + words[tc.why]
			proc.Eventually(t, "the line "+want, func() bool { return l.logged() == want })
			if err := l.visit(t); err != nil || l.Refused() != 1 || len(l.came) != 0 {
				return fmt.Errorf("a rank of the job: %v; %d refused, %d more came in: %s", err,
					l.Refused(), len(l.came), l.logged())
			}
			return nil
		}); err != nil {
			t.Errorf("%s: %v", words[tc.why], err)
		}
	}
}

// A dialler of the job that has found a faster way is no intruder.
func TestGaveUp(t *testing.T) {
	l := open(t, rank(2))
	if s, err := rank(1).Dial(context.Background(), l.intruder(t), 2); err != nil {
		t.Error(err)
	} else {
		s.Close()
	}
	proc.Eventually(t, "the end", l.quiet)
	if l.Refused() != 0 || l.logged() != "" {
		t.Errorf("%d refused: %s", l.Refused(), l.logged())
	}
}

// Ten thousand connections of intruders while ranks come in: what they cost is bounded, they are counted, and the log
// is not full of them.
func TestTenThousand(t *testing.T) {
	const intruders, each, diallers = 8, 1250, 20
	said := record(t, rank(1), rank(2))
	l := open(t, rank(2))
	files, heap, began := leak.Files(), heapInUse(), time.Now()
	var mostFiles, mostPending int
	stop := make(chan struct{})
	var watch, flooding sync.WaitGroup
	watch.Go(func() {
		for {
			select {
			case <-stop:
				return
			case <-time.After(time.Millisecond):
				mostFiles, mostPending = max(mostFiles, leak.Files()), max(mostPending, l.pendingNow())
			}
		}
	})
	for s := range intruders {
		flooding.Go(func() { flood(t, l.at, each, said, uint64(s)) })
	}
	for range diallers {
		l.letsIn(t)
	}
	flooding.Wait()
	l.letsIn(t)
	close(stop)
	watch.Wait()
	// Those that were closed by a network that is too fast for the acceptor have never been seen by it.
	if n := l.Refused(); n < intruders*each/2 {
		t.Errorf("%d were counted of %d", n, intruders*each)
	}
	if n := mostFiles - files; n > defaultPending+intruders*held+50 {
		t.Errorf("%d descriptors", n)
	}
	if mostPending > defaultPending {
		t.Errorf("%d handshakes at once", mostPending)
	}
	proc.Eventually(t, "the end of all handshakes", l.quiet)
	if grown := int64(heapInUse()) - int64(heap); grown > 16<<20 {
		t.Errorf("the heap has grown by %d bytes", grown)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	// Two for each second and reason: one at its beginning and one for the rest.
	most := 2 * int(reasons) * (2 + int(time.Since(began)/noticePause))
	if len(l.lines) == 0 || len(l.lines) > min(most, intruders*each/4) {
		t.Errorf("%d lines in the log", len(l.lines))
	}
}

func heapInUse() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// held is how many connections an intruder keeps open.
const held = 16

// flood makes n connections that say a part of said, rubbish, or nothing, and keeps the last ones open.
func flood(t *testing.T, to string, n int, said []byte, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 1))
	var open []net.Conn
	for range n {
		conn, err := net.Dial("tcp", to)
		if errors.Is(err, syscall.ECONNRESET) {
			continue // closed before it was in
		}
		if err != nil {
			t.Error(err)
			break
		}
		conn.(*net.TCPConn).SetLinger(0)
		switch rng.IntN(4) {
		case 0:
			conn.Write(said)
		case 1:
			conn.Write(said[:rng.IntN(len(said))])
		case 2:
			conn.Write([]byte("GET / HTTP/1.1\r\n\r\n"))
		}
		if open = append(open, conn); len(open) > held {
			open[0].Close()
			open = open[1:]
		}
	}
	for _, conn := range open {
		conn.Close()
	}
}

// slow loris: connections that say a byte now and then, more than may be pending, and again and again. A rank of the
// job comes in at once, because the oldest of them make room.
func TestSlowLoris(t *testing.T) {
	l := open(t, rank(2, within(time.Hour))) // so that only those that make room go
	said := record(t, rank(1), rank(2))
	for i := range defaultPending + 40 {
		l.intruder(t).Write(said[:1+i%openingSize])
	}
	proc.Eventually(t, "as many pending as may be", func() bool { return l.pendingNow() == defaultPending })
	for range 5 {
		l.letsIn(t)
	}
	proc.Eventually(t, "40 that made room", func() bool { return l.failed[crowded].Load() >= 40 })
	if !strings.Contains(l.logged(), words[crowded]) {
		t.Errorf("the log: %s", l.logged())
	}
}

// A connection that is alone is not closed for many from elsewhere, even if it has come first.
func TestPerHost(t *testing.T) {
	const most = 16
	h := rank(2)
	a := &Acceptor{perHost: map[netip.Prefix]int{}, served: map[net.Conn]struct{}{}, ln: deaf{}, quit: make(chan struct{}),
		opt: Options{Pending: most, Accept: h.Accept, Log: func(string, ...any) {}}}
	come := func(from string) *pendingConn {
		ours, theirs := net.Pipe()
		t.Cleanup(func() { theirs.Close() })
		p := &pendingConn{conn: ours, host: hostOf(netip.MustParseAddr(from)), done: make(chan struct{})}
		for !a.admit(p) {
			a.makeRoom()
		}
		return p
	}
	alone, first := come("10.0.0.1"), come("10.0.0.66")
	for range 3 * most {
		come("10.0.0.66")
	}
	a.mu.Lock()
	if alone.closed || !first.closed || len(a.pending) != most ||
		a.perHost[alone.host] != 1 || a.perHost[first.host] != most-1 {
		t.Errorf("alone %v, first of the many %v, %d pending: %v", alone.closed, first.closed, len(a.pending), a.perHost)
	}
	a.mu.Unlock()
	a.Close()
	if n := a.failed[crowded].Load(); n != 2*most+2 {
		t.Errorf("%d made room", n)
	}
	if hostOf(netip.MustParseAddr("fd77::1")) != hostOf(netip.MustParseAddr("fd77::2:1")) {
		t.Error("one network of IPv6 has many origins")
	}
}

// deaf is a listener to which no connection comes.
type deaf struct{ net.Listener }

func (deaf) Close() error { return nil }

// flaky says for a while that there are no descriptors left.
type flaky struct {
	net.Listener
	fails atomic.Int32
}

func (f *flaky) Accept() (net.Conn, error) {
	if f.fails.Add(-1) >= 0 {
		return nil, &net.OpError{Op: "accept", Err: syscall.EMFILE}
	}
	return f.Listener.Accept()
}

func TestNoDescriptors(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f := &flaky{Listener: ln}
	f.fails.Store(4)
	l := openOn(t, f, rank(2))
	l.letsIn(t)
	said := func() int { return strings.Count(l.logged(), "cannot accept connections") }
	for end := time.Now().Add(hang); said() == 0 && time.Now().Before(end); { // another goroutine says it
		time.Sleep(time.Millisecond)
	}
	if n := said(); n != 1 {
		t.Errorf("logged %d times: %s", n, l.logged())
	}
}

// starved accepts one connection for each descriptor that it has, and is asked otherwise as the socket that it is.
type starved struct {
	*net.TCPListener
	left, asked atomic.Int32
}

func (s *starved) Accept() (net.Conn, error) {
	s.asked.Add(1)
	if s.left.Add(-1) < 0 {
		return nil, &net.OpError{Op: "accept", Err: syscall.EMFILE}
	}
	return s.TCPListener.Accept()
}

// Without a free descriptor no connection is closed to make room, unless there is one to make room for.
func TestNoDescriptorsNoneWaits(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &starved{TCPListener: ln.(*net.TCPListener)}
	s.left.Store(1)
	l := openOn(t, s, rank(2, within(time.Hour)))
	l.intruder(t)
	proc.Eventually(t, "many looks for another one", func() bool { return s.asked.Load() > 6 })
	if n := l.pendingNow(); n != 1 || l.Refused() != 0 {
		t.Errorf("%d pending, %d refused, and none waits: %s", n, l.Refused(), l.logged())
	}
	l.intruder(t)
	proc.Eventually(t, "room for the next", func() bool { return l.failed[crowded].Load() == 1 })
	s.left.Store(1 << 20)
	l.letsIn(t)
}

// The acceptor is closed while some connections are pending and one is served.
func TestClose(t *testing.T) {
	limit := within(time.Hour) // so that only Close can end it
	l := open(t, rank(2, withTLS, limit))
	for range 20 {
		l.intruder(t)
	}
	s, err := rank(1, withTLS).Dial(context.Background(), l.intruder(t), 2)
	if err == nil {
		err = s.Confirm(nil) // and no TLS follows
	}
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	if !l.quiet() || len(l.came) > 0 {
		t.Errorf("%d pending, %d served", len(l.pending), len(l.came))
	}
	if _, err := l.ln.Accept(); !errors.Is(err, net.ErrClosed) { // the port itself may be another's already
		t.Error("the port is still open:", err)
	}
	l.Close()
}

// Connections to an address that is not used are refused without a look at what they say.
func TestElsewhere(t *testing.T) {
	l := open(t, rank(2), func(o *Options) { o.Allows = func(local netip.Addr) bool { return !local.IsLoopback() } })
	if conn, err := net.Dial("tcp", l.at); err == nil { // it may have been closed before Dial returns
		conn.Close()
	}
	proc.Eventually(t, "a refusal", func() bool { return l.failed[elsewhere].Load() == 1 })
	proc.Eventually(t, "a line that says why", func() bool { return strings.Contains(l.logged(), "GORUN_TCP_IF") })
}

// Of many refusals there is a line for each reason at once, and one with the rest after a pause or at the end. No
// refusal is left out, or counted twice.
func TestNotices(t *testing.T) {
	l := open(t, rank(2))
	began := time.Now()
	for i := range 1000 {
		l.note(&Error{Why: unproved}, netip.MustParseAddr([]string{"10.0.0.7", "10.0.0.8"}[i%2]))
	}
	l.note(&Error{Why: slow}, netip.Addr{})
	l.Close()
	most := 2 + int(time.Since(began)/noticePause)
	counted, lines := map[string]int{}, map[string]int{}
	for _, line := range l.lines {
		m := regexp.MustCompile(`^test: (\d+) connections? refused from [^:]*: (.*)$`).FindStringSubmatch(line)
		if m == nil {
			t.Fatal(line)
		}
		n, _ := strconv.Atoi(m[1])
		counted[m[2]] += n
		lines[m[2]]++
	}
	if counted[words[unproved]] != 1000 || lines[words[unproved]] > most || counted[words[slow]] != 1 {
		t.Errorf("%v in %v lines", counted, lines)
	}
	l = open(t, rank(2))
	proc.Eventually(t, "the second line", func() bool {
		l.note(&Error{Why: unproved}, netip.MustParseAddr("10.0.0.7"))
		return strings.Count(l.logged(), "from 10.0.0.7: did not prove the job's secret") == 2
	})
}

func TestNoticeText(t *testing.T) {
	at := netip.MustParseAddr("10.0.0.8")
	for _, c := range []struct {
		n    notice
		why  Reason
		text string
	}{
		{notice{count: 1, from: at}, unproved, "1 connection refused from 10.0.0.8: did not prove the job's secret"},
		{notice{count: 999, from: at, others: true}, slow,
			"999 connections refused from 10.0.0.8 and others: did not go on in time"},
		{notice{count: 2, err: errors.New("torn")}, Broken, "2 connections from this host failed: torn"},
	} {
		if text := c.n.text(c.why); text != c.text {
			t.Errorf("%q, want %q", text, c.text)
		}
	}
}

// A handshake that breaks for a reason of this side is logged and not counted.
func TestHelpless(t *testing.T) {
	l := open(t, rank(2, func(h *Handshaker) { h.Secret = known("short") }))
	s := raw(1, nil, true)
	l.intruder(t).Write(bytes.Clone(s.buf[:s.putFirst(labelOpening, identity{from: 1, to: 2}.encode())]))
	proc.Eventually(t, "a line that says why", func() bool {
		return strings.Contains(l.logged(), "1 connection from 127.0.0.1 failed: met a rank that could not answer") &&
			strings.Contains(l.logged(), "5 bytes")
	})
	if l.Refused() != 0 {
		t.Errorf("%d refused", l.Refused())
	}
}

// A log that takes nothing, since its reader has stopped for example, keeps no connection waiting.
func TestLogBlocks(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f := &flaky{Listener: ln}
	f.fails.Store(1)
	proceed, in := make(chan struct{}), make(chan struct{})
	h := rank(2)
	a := Serve(f, Options{Name: "test", Accept: h.Accept,
		Serve: func(s *Session) { s.Answer(nil); s.Finish(); close(in) },
		Log:   func(string, ...any) { <-proceed }})
	defer a.Close()
	defer close(proceed)
	conn, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), hang)
	defer cancel()
	e := dial(ctx, rank(1), conn, 2, "")
	if e.err != nil {
		t.Fatal(e.err)
	}
	defer e.Conn.Close()
	<-in
}
