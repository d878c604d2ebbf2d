package tcp

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gorun-mpi/mpi/internal/testkit/leak"
	"github.com/gorun-mpi/mpi/transport"
)

// hang is when a test is given up. It says nothing about speed.
const hang = 30 * time.Second

// leavesNothing fails the test if it ends with more goroutines or descriptors than it began with.
func leavesNothing(t *testing.T) {
	t.Helper()
	before := leak.Take()
	t.Cleanup(func() {
		if err := before.Check(hang); err != nil {
			t.Error(err)
		}
	})
}

var jobKey = []byte("a secret of thirty-two bytes ...")

// greeterOf makes rank's of a job of four. It gives up when the test would: a test that waits for a limit sets a shorter one.
func greeterOf(rank int) *greeter {
	return &greeter{
		job: "job", rank: rank, size: 4, limit: hang,
		secret: func() ([]byte, error) { return jobKey, nil },
		admit:  func(hello) (code, uint64, uint64) { return accepted, 0, 0 },
	}
}

// socketPair is two ends of a TCP connection: who dialled, and who accepted.
func socketPair(t testing.TB) (dialled, taken net.Conn) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	if dialled, err = net.Dial("tcp", ln.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if taken, err = ln.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dialled.Close(); taken.Close() })
	return dialled, taken
}

// longer has a test that lives with a short limit tried again with a longer one where the machine stood still for longer
// than what had to be in time for it. It returns what was wrong the last time.
func longer(limit time.Duration, try func(limit time.Duration) error) (err error) {
	for ; ; limit *= 5 {
		if err = try(limit); err == nil || 5*limit > hang {
			return err
		}
	}
}

// both lets d dial a on a pair of sockets.
func both(t testing.TB, d, a *greeter) (dg, ag *greeted, derr, aerr error) {
	t.Helper()
	dc, ac := socketPair(t)
	done := make(chan struct{})
	go func() {
		defer close(done)
		ag, aerr = a.accept(ac)
	}()
	ctx, cancel := context.WithTimeout(context.Background(), hang)
	defer cancel()
	dg, derr = d.dial(ctx, dc, newToken(), a.rank, 11, 12)
	<-done
	return dg, ag, derr, aerr
}

func TestGreet(t *testing.T) {
	for _, secure := range []bool{false, true} {
		name := "plain"
		if secure {
			name = "tls"
		}
		t.Run(name, func(t *testing.T) {
			leavesNothing(t)
			d, a := greeterOf(1), greeterOf(2)
			d.secure, a.secure = secure, secure
			d.introduce([]byte("card of 1"))
			a.introduce(bytes.Repeat([]byte("x"), cardMax))
			var said hello
			a.admit = func(h hello) (code, uint64, uint64) { said = h; return accepted, 21, 22 }
			dg, ag, derr, aerr := both(t, d, a)
			if derr != nil || aerr != nil {
				t.Fatal(derr, aerr)
			}
			if said.from != 1 || said.to != 2 || said.sent != 11 || said.received != 12 {
				t.Errorf("admit was asked about %+v", said)
			}
			if dg.peer != 2 || !dg.dialed || dg.sent != 21 || dg.received != 22 || len(dg.card) != cardMax {
				t.Errorf("the dialler got %+v", dg)
			}
			if ag.peer != 1 || ag.dialed || ag.sent != 11 || ag.received != 12 || string(ag.card) != "card of 1" {
				t.Errorf("the acceptor got %+v", ag)
			}
			if secure != (dg.tls != nil && dg.wire != nil && ag.tls != nil && ag.wire != nil) {
				t.Errorf("TLS: %v and %v", dg.tls, ag.tls)
			}
			talk(t, dg, ag)
			talk(t, ag, dg)
		})
	}
}

// talk sends a word.
func talk(t *testing.T, from, to *greeted) {
	t.Helper()
	w, r := io.Writer(from.conn), io.Reader(to.conn)
	if from.tls != nil {
		w, r = from.tls, to.tls
	}
	if _, err := w.Write([]byte("word")); err != nil {
		t.Fatal(err)
	}
	var b [4]byte
	if _, err := io.ReadFull(r, b[:]); err != nil || string(b[:]) != "word" {
		t.Fatalf("%q, %v", b, err)
	}
}

// What comes right behind the verdict is not the handshake's, and is left in the socket. So are the deadlines over.
func TestGreetReadsNothingBeyond(t *testing.T) {
	leavesNothing(t)
	if err := longer(500*time.Millisecond, func(limit time.Duration) error {
		d, a := greeterOf(0), greeterOf(3)
		d.limit, a.limit = limit, limit
		dc, ac := socketPair(t)
		accepted := make(chan error, 1)
		go func() {
			gr, err := a.accept(ac)
			if accepted <- err; err != nil {
				return
			}
			gr.conn.Write([]byte("first"))
			time.Sleep(limit + 100*time.Millisecond) // longer than a step may take: a deadline that is left would strike
			gr.conn.Write([]byte("later"))
		}()
		gr, err := d.dial(context.Background(), dc, newToken(), 3, 0, 0)
		if err := errors.Join(err, <-accepted); err != nil {
			return err
		}
		var b [10]byte
		if _, err := io.ReadFull(gr.conn, b[:]); err != nil || string(b[:]) != "firstlater" {
			t.Fatalf("%q, %v", b, err)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

func TestGreetCodes(t *testing.T) {
	for _, c := range []code{crossing, mismatch, leaving} {
		t.Run(c.String(), func(t *testing.T) {
			leavesNothing(t)
			d, a := greeterOf(1), greeterOf(2)
			a.admit = func(hello) (code, uint64, uint64) { return c, 5, 6 }
			a.dropped = func(hello) { t.Error("dropped, though it was never accepted") }
			dg, ag, derr, aerr := both(t, d, a)
			if derr != nil || aerr != nil {
				t.Fatal(derr, aerr)
			}
			if dg.code != c || ag.code != c || dg.sent != 5 || dg.received != 6 {
				t.Errorf("dialler %+v, acceptor %+v", dg, ag)
			}
			if dg.conn != nil || ag.conn != nil {
				t.Error("there is still a connection")
			}
		})
	}
}

// Two ranks that do not fit, and what each of them says of it.
func TestGreetDiffers(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(d, a *greeter)
		why    reason
		says   string
	}{
		{"job", func(d, a *greeter) { d.job = "other" }, isOtherJob, "another job"},
		{"from too large", func(d, a *greeter) { d.rank = 4 }, isOtherRank, "rank 4 is none"},
		{"from itself", func(d, a *greeter) { d.rank = 2 }, isOtherRank, "not rank 2"},
		{"tls of the dialler", func(d, a *greeter) { d.secure = true }, isOtherTLS, "does not want TLS"},
		{"tls of the acceptor", func(d, a *greeter) { a.secure = true }, isOtherTLS, "wants TLS"},
		{"secret", func(d, a *greeter) {
			d.secret = func() ([]byte, error) { return bytes.Repeat([]byte("!"), 32), nil }
		}, isUnproved, "another secret"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			leavesNothing(t)
			d, a := greeterOf(1), greeterOf(2)
			tc.change(d, a)
			a.admit = func(hello) (code, uint64, uint64) {
				t.Error("was let in")
				return leaving, 0, 0
			}
			_, _, derr, aerr := both(t, d, a)
			if aerr == nil || whyOf(aerr) != tc.why {
				t.Errorf("the acceptor: %v", aerr)
			}
			if derr == nil || !strings.Contains(derr.Error(), tc.says) {
				t.Errorf("the dialler: %v; should say %q", derr, tc.says)
			}
		})
	}
	t.Run("another rank", func(t *testing.T) {
		leavesNothing(t)
		d, a := greeterOf(1), greeterOf(2)
		dc, ac := socketPair(t)
		go a.accept(ac)
		if _, err := d.dial(context.Background(), dc, newToken(), 3, 0, 0); err == nil || !strings.Contains(err.Error(), "not rank 3") {
			t.Error(err)
		}
	})
}

// A hello of another version may have another length; both sides say which versions met.
func TestGreetVersion(t *testing.T) {
	leavesNothing(t)
	raw, ac := socketPair(t)
	h := hello{version: 9}
	var b [messageMax]byte
	h.encode(&b)
	raw.Write(b[:greetingSize])
	_, err := greeterOf(0).accept(ac)
	if whyOf(err) != isOtherVers {
		t.Error(err)
	}
	answer, _ := io.ReadAll(raw)
	if c, ok := decodeChallenge(append(answer, make([]byte, challengeSize)...)[:challengeSize]); !ok || c.version != protocol || c.why != isOtherVers || len(answer) != challengeSize {
		t.Errorf("answer %x", answer)
	}

	dc, raw := socketPair(t)
	c := challenge{version: 9}
	c.encode(&b)
	raw.Write(b[:challengeSize])
	_, err = greeterOf(0).dial(context.Background(), dc, newToken(), 1, 0, 0)
	if err == nil || !strings.Contains(err.Error(), "version 9") || !strings.Contains(err.Error(), "version 1") {
		t.Error(err)
	}
}

// An acceptor that has not the key gets the dialler's proof, and is not believed.
func TestGreetWrongAcceptor(t *testing.T) {
	leavesNothing(t)
	for name, verdict := range map[string]func(p *party, n int){
		"no proof":           func(p *party, n int) { clear(p.msg[:macSize]) },
		"one bit of a count": func(p *party, n int) { p.msg[40] ^= 1 },
		"another code":       func(p *party, n int) { p.msg[32] = byte(leaving) },
		"the card":           func(p *party, n int) { p.msg[n-1] ^= 1 },
		"the dialler's label": func(p *party, n int) {
			copy(p.msg[:], p.mac(labelDialer, n))
		},
	} {
		t.Run(name, func(t *testing.T) {
			leavesNothing(t)
			dc, ac := socketPair(t)
			a := greeterOf(2)
			go func() {
				p := a.begin(ac)
				if _, err := p.hear(); err != nil || a.prepare() != nil || p.challenge(isProper) != nil {
					t.Error(err)
				}
				if _, err := p.hearProof(); err != nil {
					t.Error(err)
				}
				n := p.encodeVerdict(&verdictOf, []byte("card"))
				verdict(p, n)
				ac.Write(p.msg[:n])
			}()
			token := newToken()
			_, err := greeterOf(1).dial(context.Background(), dc, token, 2, 0, 0)
			if whyOf(err) != isUnproved {
				t.Error(err)
			}
			if len(token) != 1 {
				t.Error("the token was not given back")
			}
		})
	}
}

var verdictOf = verdict{code: accepted, sent: 1, received: 2}

// recorder keeps what is written.
type recorder struct {
	net.Conn
	mu      sync.Mutex
	written []byte
}

func (r *recorder) Write(b []byte) (int, error) {
	r.mu.Lock()
	r.written = append(r.written, b...)
	r.mu.Unlock()
	return r.Conn.Write(b)
}

// record returns what a dialler of the job has said in a handshake that was accepted.
func record(t testing.TB, d, a *greeter) []byte {
	t.Helper()
	dc, ac := socketPair(t)
	go a.accept(ac)
	r := &recorder{Conn: dc}
	if _, err := d.dial(context.Background(), r, newToken(), a.rank, 0, 0); err != nil {
		t.Fatal(err)
	}
	return r.written
}

// What has been recorded, of this job or another, opens nothing.
func TestGreetReplay(t *testing.T) {
	leavesNothing(t)
	a := greeterOf(2)
	ours := record(t, greeterOf(1), a)
	d2, a2 := greeterOf(1), greeterOf(2)
	d2.job, a2.job = "other", "other"
	others := record(t, d2, a2)
	d3, a3 := greeterOf(1), greeterOf(2)
	d3.secret = func() ([]byte, error) { return []byte("the same name, another secret"), nil }
	a3.secret = d3.secret
	namesake := record(t, d3, a3)
	for _, tc := range []struct {
		name string
		said []byte
		why  reason
	}{
		{"of this job", ours, isUnproved},
		{"of another job", others, isOtherJob},
		{"of a job of the same name", namesake, isUnproved},
	} {
		raw, ac := socketPair(t)
		raw.Write(tc.said)
		if _, err := a.accept(ac); whyOf(err) != tc.why {
			t.Errorf("%s: %v", tc.name, err)
		}
	}
}

// Whoever stalls, wherever: the other side gives up after one limit, and says so.
func TestGreetStalls(t *testing.T) {
	leavesNothing(t)
	said := record(t, greeterOf(1), greeterOf(2))
	stops := []int{0, 1, 7, 8, greetingSize, helloSize - 1, helloSize, helloSize + 1, helloSize + proofSize - 1}
	for _, k := range stops {
		raw, ac := socketPair(t)
		a := greeterOf(2)
		a.limit = 30 * time.Millisecond
		raw.Write(said[:k])
		if _, err := a.accept(ac); whyOf(err) != isSlow {
			t.Errorf("the dialler stalls after %d bytes: %v", k, err)
		}
	}
	var c [messageMax]byte
	challenge := challenge{version: protocol}
	challenge.encode(&c)
	for _, k := range []int{0, 1, challengeSize - 1, challengeSize, challengeSize + 1, challengeSize + verdictSize - 1} {
		dc, raw := socketPair(t)
		d := greeterOf(1)
		d.limit = 30 * time.Millisecond
		answer := append(c[:challengeSize:challengeSize], make([]byte, verdictSize)...)
		raw.Write(answer[:k])
		_, err := d.dial(context.Background(), dc, newToken(), 2, 0, 0)
		if !errors.Is(err, transport.ErrTimeout) || !strings.Contains(err.Error(), "no answer in 30ms") {
			t.Errorf("the acceptor stalls after %d bytes: %v", k, err)
		}
	}
}

// A byte now and then does not buy more time.
func TestGreetDrips(t *testing.T) {
	leavesNothing(t)
	said := record(t, greeterOf(1), greeterOf(2))
	raw, ac := socketPair(t)
	stop := make(chan struct{})
	defer close(stop)
	go func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			case <-time.After(5 * time.Millisecond):
				if i == len(said) {
					i = 0
				}
				raw.Write(said[i : i+1])
			}
		}
	}()
	a := greeterOf(2)
	a.limit = 50 * time.Millisecond
	if _, err := a.accept(ac); whyOf(err) != isSlow {
		t.Error(err)
	}
}

// Whoever closes, wherever.
func TestGreetHangsUp(t *testing.T) {
	leavesNothing(t)
	said := record(t, greeterOf(1), greeterOf(2))
	for k, why := range map[int]reason{0: isSilent, 1: isStranger, 20: isStranger, helloSize: isGone, helloSize + 1: isStranger} {
		raw, ac := socketPair(t)
		raw.Write(said[:k])
		raw.(*net.TCPConn).CloseWrite()
		if _, err := greeterOf(2).accept(ac); whyOf(err) != why {
			t.Errorf("after %d bytes: %v, reason %d", k, err, whyOf(err))
		}
	}
	dc, raw := socketPair(t)
	raw.Close()
	if _, err := greeterOf(1).dial(context.Background(), dc, newToken(), 2, 0, 0); !errors.Is(err, errTurnedAway) {
		t.Error(err)
	}
}

// A context that ends, ends the handshake wherever it is.
func TestGreetContext(t *testing.T) {
	leavesNothing(t)
	for _, where := range []string{"challenge", "token", "verdict"} {
		dc, raw := socketPair(t)
		ctx, cancel := context.WithCancelCause(context.Background())
		enough := errors.New("enough")
		token := newToken()
		if where == "token" {
			<-token
		}
		if where != "challenge" {
			var c [messageMax]byte
			challenge := challenge{version: protocol}
			challenge.encode(&c)
			raw.Write(c[:challengeSize])
		}
		time.AfterFunc(20*time.Millisecond, func() { cancel(enough) })
		d := greeterOf(1)
		d.limit = time.Hour // so that only the context can end it
		if _, err := d.dial(ctx, dc, token, 2, 0, 0); !errors.Is(err, enough) {
			t.Errorf("%s: %v", where, err)
		}
		if _, err := dc.Write([]byte("x")); !errors.Is(err, net.ErrClosed) {
			t.Errorf("%s: the connection is not closed: %v", where, err)
		}
	}
}

// Of the connections that one call dials, one at a time is between proof and verdict, and none proves after a verdict.
func TestGreetToken(t *testing.T) {
	leavesNothing(t)
	d, a := greeterOf(1), greeterOf(2)
	judging, decide := make(chan struct{}, 2), make(chan struct{})
	a.admit = func(hello) (code, uint64, uint64) {
		judging <- struct{}{}
		<-decide
		return accepted, 0, 0
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
			_, err := d.dial(ctx, dc, token, 2, 0, 0)
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

// A connection that breaks between the verdict and its delivery is reported to who has admitted it.
func TestGreetDropped(t *testing.T) {
	leavesNothing(t)
	if err := longer(50*time.Millisecond, func(limit time.Duration) error {
		a := greeterOf(2)
		a.secure = true
		a.limit = limit // TLS does not begin
		dropped := make(chan hello, 1)
		a.dropped = func(h hello) { dropped <- h }
		dc, ac := socketPair(t)
		d := greeterOf(1)
		d.secure = true
		done := make(chan error, 1)
		go func() {
			_, err := a.accept(ac)
			done <- err
		}()
		p := d.begin(dc)
		p.ctx = context.Background()
		if err := d.prepare(); err != nil {
			t.Fatal(err)
		}
		if err := p.knock(2, 7, 8); err != nil {
			return errors.Join(err, <-done)
		}
		dc.Write(p.msg[:p.encodeProof(nil)])
		if err := <-done; whyOf(err) != isBroken {
			return fmt.Errorf("the acceptor: %w", err)
		}
		select {
		case h := <-dropped:
			if h.from != 1 || h.sent != 7 {
				t.Errorf("%+v", h)
			}
		default:
			t.Error("nobody was told")
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
}

func TestGreetNoSecret(t *testing.T) {
	leavesNothing(t)
	d, a := greeterOf(1), greeterOf(2)
	d.secret = func() ([]byte, error) { return nil, errors.New("lost") }
	a.secret = func() ([]byte, error) { return []byte("short"), nil }
	dc, ac := socketPair(t)
	if _, err := d.dial(context.Background(), dc, newToken(), 2, 0, 0); err == nil || !strings.Contains(err.Error(), "secret: lost") {
		t.Error(err)
	}
	_, _, _, err := both(t, greeterOf(1), a)
	ac.Close()
	if whyOf(err) != isHelpless || !strings.Contains(err.Error(), "5 bytes") {
		t.Error(err)
	}
}

// serve writes b to conn and takes whatever comes.
func serve(conn net.Conn, b []byte) (done chan struct{}) {
	done = make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		conn.Write(b)
		conn.Close()
	})
	wg.Go(func() { io.Copy(io.Discard, conn) })
	go func() {
		wg.Wait()
		close(done)
	}()
	return done
}

// FuzzAccept is a dialler that says anything but what only who has the secret can say.
func FuzzAccept(f *testing.F) {
	said := record(f, greeterOf(1), greeterOf(2))
	for _, n := range []int{0, 1, greetingSize, helloSize, len(said)} {
		f.Add(said[:n])
	}
	f.Add([]byte("GET / HTTP/1.1\r\n\r\n"))
	f.Add(append(said[:helloSize:helloSize], bytes.Repeat([]byte{0xff}, 100)...))
	f.Add(append(said[:helloSize:helloSize], make([]byte, proofSize+cardMax)...))
	f.Fuzz(func(t *testing.T, b []byte) {
		a := greeterOf(2)
		a.limit = time.Second
		a.admit = func(hello) (code, uint64, uint64) {
			t.Error("was let in")
			return accepted, 0, 0
		}
		ours, theirs := net.Pipe()
		done := serve(theirs, b)
		if _, err := a.accept(ours); err == nil || whyOf(err) == isProper {
			t.Errorf("%v", err)
		}
		<-done
	})
}

// FuzzDial is an acceptor that says anything.
func FuzzDial(f *testing.F) {
	var b [messageMax]byte
	c := challenge{version: protocol}
	c.encode(&b)
	good := bytes.Clone(b[:challengeSize])
	f.Add(good)
	f.Add(good[:20])
	f.Add(append(good[:len(good):len(good)], make([]byte, verdictSize)...))
	a := greeterOf(2)
	if err := a.prepare(); err != nil {
		f.Fatal(err)
	}
	p := a.begin(nil)
	f.Add(append(good[:len(good):len(good)], p.msg[:p.encodeVerdict(&verdictOf, make([]byte, cardMax))]...))
	c.why = isOtherJob
	c.encode(&b)
	f.Add(bytes.Clone(b[:challengeSize]))
	f.Fuzz(func(t *testing.T, b []byte) {
		d := greeterOf(1)
		d.limit = time.Second
		ours, theirs := net.Pipe()
		done := serve(theirs, b)
		if gr, err := d.dial(context.Background(), ours, newToken(), 2, 0, 0); err == nil || gr != nil {
			t.Errorf("believed %+v", gr)
		}
		<-done
	})
}
