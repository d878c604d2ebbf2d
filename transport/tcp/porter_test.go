package tcp

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/gorun-mpi/mpi/internal/testkit/leak"
)

// lodge is a porter of rank 2 and what it has delivered and logged.
type lodge struct {
	*porter
	at    netip.AddrPort
	came  chan *greeted
	mu    sync.Mutex
	lines []string
}

func (l *lodge) logged() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Join(l.lines, "\n")
}

// opened makes a lodge of a on 127.0.0.1.
func opened(t *testing.T, a *greeter) *lodge {
	t.Helper()
	ln, err := listen(Filter{}, PortRange{})
	if err != nil {
		t.Fatal(err)
	}
	return openedAt(t, a, ln)
}

func openedAt(t *testing.T, a *greeter, ln net.Listener) *lodge {
	l := &lodge{came: make(chan *greeted, 64)}
	l.at = netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), uint16(ln.Addr().(*net.TCPAddr).Port))
	l.porter = newPorter(ln, a, func(gr *greeted) { l.came <- gr }, func(msg string, args ...any) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.lines = append(l.lines, fmt.Sprint(append([]any{msg}, args...)...))
	})
	t.Cleanup(l.Close)
	return l
}

// letsIn checks that a rank of the job still comes in.
func (l *lodge) letsIn(t *testing.T) {
	t.Helper()
	if err := l.visit(t); err != nil {
		t.Fatalf("a rank of the job was kept out: %v\n%s", err, l.logged())
	}
}

// visit is a rank of the job that comes in, talks and goes.
func (l *lodge) visit(t *testing.T) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), hang)
	defer cancel()
	gr, err := dialAll(ctx, greeterOf(1), 2, l.at)
	if err != nil {
		return err
	}
	select {
	case other := <-l.came:
		talk(t, gr, other)
		other.conn.Close()
	case <-ctx.Done():
		t.Fatal("not delivered")
	}
	gr.conn.Close()
	return nil
}

func (l *lodge) stranger(t testing.TB) *net.TCPConn {
	t.Helper()
	conn, err := net.Dial("tcp", l.at.String())
	if err != nil {
		t.Fatal(err)
	}
	conn.(*net.TCPConn).SetLinger(0) // so that the tests leave nothing in the kernel
	t.Cleanup(func() { conn.Close() })
	return conn.(*net.TCPConn)
}

// until waits for what must come.
func until(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(hang); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("this does not come: ", what)
		}
	}
}

// A stranger of each kind: counted, logged with the reason, and the job goes on.
func TestPorterStrangers(t *testing.T) {
	leavesNothing(t)
	a := greeterOf(2)
	ours := record(t, greeterOf(1), a)
	d2, a2 := greeterOf(1), greeterOf(2)
	d2.job, a2.job = "other", "other"
	others := record(t, d2, a2)
	rubbish := make([]byte, 4096)
	for i := range rubbish {
		rubbish[i] = byte(rand.Uint32())
	}
	wrong := bytes.Clone(ours)
	wrong[helloSize] ^= 1
	lies := append(bytes.Clone(ours[:helloSize+macSize]), 0xff, 0xff)
	for _, tc := range []struct {
		name  string
		says  []byte
		then  func(*net.TCPConn)
		why   reason
		limit time.Duration
	}{
		{"random bytes", rubbish, nil, isStranger, hang},
		{"wrong proof", wrong, nil, isUnproved, hang},
		{"replay", ours, nil, isUnproved, hang},
		{"replay from another job", others, nil, isOtherJob, hang},
		{"a card longer than there is", lies, nil, isStranger, hang},
		{"nothing, and hangs up", nil, func(c *net.TCPConn) { c.CloseWrite() }, isSilent, hang},
		{"half a hello, and hangs up", ours[:40], func(c *net.TCPConn) { c.CloseWrite() }, isStranger, hang},
		// The limit is for the rank that comes afterwards too.
		{"half open", nil, nil, isSlow, time.Second},
		{"stall in the hello", ours[:40], nil, isSlow, time.Second},
		{"stall before the proof", ours[:helloSize], nil, isSlow, time.Second},
		{"stall in the proof", ours[:helloSize+10], nil, isSlow, time.Second},
	} {
		t.Run(tc.name, func(t *testing.T) {
			leavesNothing(t)
			once := func(limit time.Duration) error {
				a := greeterOf(2)
				a.limit = limit
				l := opened(t, a)
				conn := l.stranger(t)
				conn.Write(tc.says)
				if tc.then != nil {
					tc.then(conn)
				}
				until(t, "a refusal", func() bool { return l.Refused() == 1 })
				if l.refused[tc.why].Load() != 1 {
					return fmt.Errorf("counted under another reason than %q: %s", words[tc.why], l.logged())
				}
				want := "tcp: 1 connection refused from 127.0.0.1: " + words[tc.why]
				until(t, "the line "+want, func() bool { return l.logged() == want })
				if err := l.visit(t); err != nil {
					return fmt.Errorf("a rank of the job was kept out: %w\n%s", err, l.logged())
				}
				if l.Refused() != 1 || len(l.came) != 0 {
					return fmt.Errorf("%d refused, %d more came in", l.Refused(), len(l.came))
				}
				return nil
			}
			if err := longer(tc.limit, once); err != nil {
				t.Error(err)
			}
		})
	}
}

// A dialler of the job that has found a faster way is no stranger.
func TestPorterGaveUp(t *testing.T) {
	leavesNothing(t)
	said := record(t, greeterOf(1), greeterOf(2))
	l := opened(t, greeterOf(2))
	conn := l.stranger(t)
	conn.Write(said[:helloSize])
	var answer [challengeSize]byte
	conn.Read(answer[:])
	conn.Close()
	until(t, "the end", l.quiet)
	if l.Refused() != 0 || l.logged() != "" {
		t.Errorf("%d refused: %s", l.Refused(), l.logged())
	}
}

// quiet: no handshake is under way.
func (p *porter) quiet() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.guests) == 0 && p.unproved == 0 && len(p.crowd) == 0
}

// Ten thousand connections of a stranger while ranks come in: what they cost is bounded, they are counted, and the log
// is not full of them.
func TestPorterTenThousand(t *testing.T) {
	leavesNothing(t)
	const strangers, each, diallers = 8, 1250, 20
	said := record(t, greeterOf(1), greeterOf(2))
	l := opened(t, greeterOf(2))
	files, heap, began := leak.Files(), heapInUse(), time.Now()
	var most, guests atomic.Int64
	stop := make(chan struct{})
	var watch, crowd sync.WaitGroup
	watch.Go(func() {
		for {
			select {
			case <-stop:
				return
			case <-time.After(time.Millisecond):
				most.Store(max(most.Load(), int64(leak.Files())))
				l.porter.mu.Lock()
				guests.Store(max(guests.Load(), int64(l.unproved)))
				l.porter.mu.Unlock()
			}
		}
	})
	defer watch.Wait()
	defer close(stop)
	defer crowd.Wait()
	for s := range strangers {
		crowd.Go(func() { flood(t, l.at, each, said, uint64(s)) })
	}
	for range diallers {
		// Who is turned away as often as a call dials, because the crowd is faster, calls again.
		until(t, "a rank of the job that comes in", func() bool {
			err := l.visit(t)
			if err != nil && !errors.Is(err, errTurnedAway) {
				t.Fatalf("a rank of the job was kept out: %v\n%s", err, l.logged())
			}
			return err == nil
		})
	}
	crowd.Wait()
	l.letsIn(t)
	// Those that were closed by a network that is too fast for the porter have never been seen by it.
	if n := l.Refused(); n < strangers*each/2 {
		t.Errorf("%d were counted of %d", n, strangers*each)
	}
	if n := int(most.Load()) - files; n > guestsMax+strangers*held+50 {
		t.Errorf("%d descriptors", n)
	}
	if n := guests.Load(); n > guestsMax {
		t.Errorf("%d handshakes at once", n)
	}
	until(t, "the end of all handshakes", l.quiet)
	if grown := int64(heapInUse()) - int64(heap); grown > 16<<20 {
		t.Errorf("the heap has grown by %d bytes", grown)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	// Two for each second and reason: one at its beginning and one for the rest.
	if most := 2 * int(reasons) * (2 + int(time.Since(began)/noticePause)); len(l.lines) == 0 || len(l.lines) > min(most, strangers*each/4) {
		t.Errorf("%d lines in the log", len(l.lines))
	}
}

func heapInUse() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// held is how many connections a stranger keeps open.
const held = 16

// flood makes n connections that say a part of said, rubbish, or nothing, and keeps the last ones open.
func flood(t *testing.T, to netip.AddrPort, n int, said []byte, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 1))
	var open []net.Conn
	for range n {
		conn, err := net.Dial("tcp", to.String())
		if errors.Is(err, syscall.ECONNRESET) {
			continue // turned out before it was in
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

// Slow loris: connections that say a byte now and then, more than there are places, and again and again. A rank of the
// job comes in at once, because the oldest of them make room.
func TestPorterSlowLoris(t *testing.T) {
	leavesNothing(t)
	a := greeterOf(2)
	a.limit = time.Hour // so that only who makes room goes
	l := opened(t, a)
	said := record(t, greeterOf(1), greeterOf(2))
	var slow []net.Conn
	for range guestsMax + 40 {
		conn := l.stranger(t)
		conn.Write(said[:1+len(slow)%helloSize])
		slow = append(slow, conn)
	}
	until(t, "a full house", func() bool {
		l.porter.mu.Lock()
		defer l.porter.mu.Unlock()
		return l.unproved == guestsMax
	})
	for range 5 {
		l.letsIn(t)
	}
	until(t, "40 who made room", func() bool { return l.refused[isCrowding].Load() >= 40 })
	if !strings.Contains(l.logged(), words[isCrowding]) {
		t.Errorf("the log: %s", l.logged())
	}
}

// Who is alone is not turned out for a crowd from elsewhere, even if it has come first.
func TestPorterCrowd(t *testing.T) {
	leavesNothing(t)
	p := &porter{crowd: map[netip.Prefix]int{}, g: greeterOf(2), log: func(string, ...any) {}, quit: make(chan struct{}), ln: deaf{}}
	sit := func(from string) *guest {
		ours, theirs := net.Pipe()
		t.Cleanup(func() { theirs.Close() })
		g := &guest{conn: ours, from: host(netip.MustParseAddr(from)), done: make(chan struct{})}
		for !p.seat(g) {
			p.makeRoom()
		}
		return g
	}
	alone := sit("10.0.0.1")
	first := sit("10.0.0.66")
	for range 3 * guestsMax {
		sit("10.0.0.66")
	}
	p.mu.Lock()
	if alone.out || !first.out || p.unproved != guestsMax || len(p.guests) != guestsMax {
		t.Errorf("alone %v, first of the crowd %v, %d of them", alone.out, first.out, p.unproved)
	}
	p.mu.Unlock()
	p.Close()
	if n := p.refused[isCrowding].Load(); n != 2*guestsMax+2 {
		t.Errorf("%d were turned out", n)
	}
	if host(netip.MustParseAddr("fd77::1")) != host(netip.MustParseAddr("fd77::2:1")) {
		t.Error("one network of IPv6 has many origins")
	}
}

// deaf is a listener to which nobody comes.
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

func TestPorterNoDescriptors(t *testing.T) {
	leavesNothing(t)
	ln, err := listen(Filter{}, PortRange{})
	if err != nil {
		t.Fatal(err)
	}
	f := &flaky{Listener: ln}
	f.fails.Store(4)
	l := openedAt(t, greeterOf(2), f)
	l.letsIn(t)
	if n := strings.Count(l.logged(), "cannot accept connections"); n != 1 {
		t.Errorf("logged %d times: %s", n, l.logged())
	}
}

// The porter is closed while some wait, some are being let in, and more come.
func TestPorterClose(t *testing.T) {
	leavesNothing(t)
	a := greeterOf(2)
	a.secure = true
	a.limit = time.Hour // so that only Close can end it
	l := opened(t, a)
	for range 20 {
		l.stranger(t)
	}
	d := greeterOf(1)
	d.secure = true
	dc := l.stranger(t)
	p := d.begin(dc)
	p.ctx = context.Background()
	if err := errors.Join(d.prepare(), p.knock(2, 0, 0)); err != nil {
		t.Fatal(err)
	}
	dc.Write(p.msg[:p.encodeProof(nil)]) // and no TLS follows
	until(t, "a proof", func() bool {
		l.porter.mu.Lock()
		defer l.porter.mu.Unlock()
		return len(l.guests) == l.unproved+1
	})
	l.Close()
	if !l.quiet() || len(l.came) > 0 {
		t.Errorf("%d guests, %d delivered", len(l.guests), len(l.came))
	}
	if _, err := l.ln.Accept(); !errors.Is(err, net.ErrClosed) { // the port itself may be another's already
		t.Error("the port is still open:", err)
	}
	l.Close()
}

// Connections to an address that the filter excludes are refused.
func TestPorterElsewhere(t *testing.T) {
	leavesNothing(t)
	f, err := ParseInterfaces("!127.0.0.0/8")
	if err != nil {
		t.Fatal(err)
	}
	ln, err := listen(f, PortRange{})
	if err != nil {
		t.Fatal(err)
	}
	l := openedAt(t, greeterOf(2), ln)
	if conn, err := net.Dial("tcp", l.at.String()); err == nil { // it may have been closed before Dial returns
		conn.Close()
	}
	until(t, "a refusal", func() bool { return l.refused[isElsewhere].Load() == 1 })
	until(t, "a line that says why", func() bool { return strings.Contains(l.logged(), "GORUN_TCP_IF") })
}

// Of many refusals in a second there is one line, and one when the second is over, or the porter is closed.
func TestPorterNotices(t *testing.T) {
	leavesNothing(t)
	var l *lodge
	for within := false; !within; { // one such second
		began := time.Now()
		l = opened(t, greeterOf(2))
		for i := range 1000 {
			l.refuse(isUnproved, netip.MustParseAddr([]string{"10.0.0.7", "10.0.0.8"}[i%2]))
		}
		l.refuse(isSlow, netip.MustParseAddr("10.0.0.9"))
		l.Close()
		within = time.Since(began) < noticePause
	}
	want := "tcp: 1 connection refused from 10.0.0.7: did not prove the job's secret\n" +
		"tcp: 1 connection refused from 10.0.0.9: did not go on in time\n" +
		"tcp: 999 connections refused from 10.0.0.8 and others: did not prove the job's secret"
	if l.logged() != want {
		t.Errorf("logged:\n%s\nwant:\n%s", l.logged(), want)
	}
	l = opened(t, greeterOf(2))
	for range 3 {
		l.refuse(isUnproved, netip.MustParseAddr("10.0.0.7"))
	}
	until(t, "the second line", func() bool {
		return strings.HasSuffix(l.logged(), "2 connections refused from 10.0.0.7: did not prove the job's secret")
	})
}
