package auth

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

func TestHandshake(t *testing.T) {
	for name, with := range map[string]func(*Handshaker){"plain": func(*Handshaker) {}, "tls": withTLS} {
		t.Run(name, func(t *testing.T) {
			d, a := both(t, rank(1, with), rank(2, with), 2)
			if d.err != nil || a.err != nil {
				t.Fatal(d.err, a.err)
			}
			if d.Peer != 2 || a.Peer != 1 || string(a.Payload) != "dialled" || string(d.Payload) != "accepted" {
				t.Errorf("ranks %d and %d, payloads %q and %q", d.Peer, a.Peer, a.Payload, d.Payload)
			}
			for _, conn := range []net.Conn{d.Conn, a.Conn} {
				c, ok := conn.(*tls.Conn)
				if ok != (name == "tls") {
					t.Errorf("the connection is a %T", conn)
				} else if !ok {
					continue
				}
				if st := c.ConnectionState(); st.Version != tls.VersionTLS13 || st.DidResume || len(st.PeerCertificates) != 1 {
					t.Errorf("%+v", st)
				}
			}
			talk(t, d.Conn, a.Conn)
			talk(t, a.Conn, d.Conn)
		})
	}
}

// What is drawn in messages.go: each message is one Write of that size, and no payload is in clear.
func TestMessages(t *testing.T) {
	for _, size := range []int{0, 1, MaxPayload} {
		payload := strings.Repeat("x", size)
		dc, ac := socketPair(t)
		dr, ar := &recorder{Conn: dc}, &recorder{Conn: ac}
		var wg sync.WaitGroup
		wg.Go(func() {
			if e := accept(rank(2), ar, payload); e.err != nil || string(e.Payload) != payload {
				t.Error(e.err)
			}
		})
		if e := dial(context.Background(), rank(1), dr, 2, payload); e.err != nil || string(e.Payload) != payload {
			t.Error(e.err)
		}
		wg.Wait()
		for _, r := range []struct {
			who   string
			said  [][]byte
			first int
		}{{"dialler", dr.written, 65}, {"acceptor", ar.written, 57}} {
			if len(r.said) != 2 || len(r.said[0]) != r.first || len(r.said[1]) != 2+size+16 {
				t.Errorf("the %s wrote %d messages", r.who, len(r.said))
			}
			if clear := strings.Repeat("x", 8); size >= len(clear) && bytes.Contains(slices.Concat(r.said...), []byte(clear)) {
				t.Errorf("the payload of the %s is in clear", r.who)
			}
		}
	}
}

// What comes right behind the answer is not the handshake's, and is left in the socket. So are the deadlines over.
func TestReadsNothingBeyond(t *testing.T) {
	if err := longer(500*time.Millisecond, func(limit time.Duration) error {
		dc, ac := socketPair(t)
		accepted := make(chan error, 1)
		go func() {
			e := accept(rank(3, within(limit)), ac, "")
			if accepted <- e.err; e.err != nil {
				return
			}
			e.Conn.Write([]byte("first"))
			time.Sleep(limit + 100*time.Millisecond) // longer than a step may take: a deadline that is left would strike
			e.Conn.Write([]byte("later"))
		}()
		e := dial(context.Background(), rank(0, within(limit)), dc, 3, "")
		if err := errors.Join(e.err, <-accepted); err != nil {
			return err
		}
		var b [10]byte
		if _, err := io.ReadFull(e.Conn, b[:]); err != nil || string(b[:]) != "firstlater" {
			t.Fatalf("%q, %v", b, err)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

// Two sides that do not fit, and what each of them says of it. A dialler that has not the key is told nothing.
func TestDiffers(t *testing.T) {
	const anotherJob = "of another job or has another secret"
	for _, tc := range []struct {
		name   string
		change func(d, a *Handshaker)
		why    Reason
		says   string
	}{
		{"secret", func(d, a *Handshaker) { d.Secret = known("another secret, as long") }, unproved, anotherJob},
		{"job", func(d, a *Handshaker) { d.Job = "other" }, unproved, anotherJob},
		{"protocol", func(d, a *Handshaker) { d.Protocol = "test 2" }, unproved, anotherJob},
		{"from too large", func(d, a *Handshaker) { d.Rank = 4 }, otherRank, "rank 4 is none"},
		{"from beyond all", func(d, a *Handshaker) { d.Rank = 1<<32 - 1 }, otherRank, "is none of its ranks"},
		{"from the launcher", func(d, a *Handshaker) { d.Rank = Launcher }, otherRank, "is none of its ranks"},
		{"from itself", func(d, a *Handshaker) { d.Rank = 2 }, otherRank, "not rank 2"},
		{"to another rank", func(d, a *Handshaker) { a.Rank = 3 }, otherRank, "not rank 2"},
		{"tls of the dialler", func(d, a *Handshaker) { d.TLS = true }, otherTLS, "does not want TLS"},
		{"tls of the acceptor", func(d, a *Handshaker) { a.TLS = true }, otherTLS, "wants TLS"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dialler, acceptor := rank(1), rank(2)
			tc.change(dialler, acceptor)
			d, a := both(t, dialler, acceptor, 2)
			if Why(a.err) != tc.why {
				t.Errorf("the acceptor: %v", a.err)
			}
			if d.err == nil || !strings.Contains(d.err.Error(), tc.says) ||
				errors.Is(d.err, ErrTurnedAway) != (tc.why == unproved) {
				t.Errorf("the dialler: %v; should say %q", d.err, tc.says)
			}
		})
	}
}

// An opening of another version may have another length; both sides say which versions met.
func TestVersion(t *testing.T) {
	other := preamble
	other[preambleSize-1] = 9
	raw, ac := socketPair(t)
	raw.Write(other[:])
	if e := accept(rank(0), ac, ""); Why(e.err) != otherVersion {
		t.Error(e.err)
	}
	if answer, _ := io.ReadAll(raw); !bytes.Equal(answer, preamble[:]) {
		t.Errorf("answer %q", answer)
	}
	dc, raw := socketPair(t)
	raw.Write(other[:])
	e := dial(context.Background(), rank(0), dc, 1, "")
	if e.err == nil || !strings.Contains(e.err.Error(), "version 9") || !strings.Contains(e.err.Error(), "version 1") {
		t.Error(e.err)
	}
}

// raw returns a session of rank r as it is before the first message, for a test that says something of its own.
func raw(r int, conn net.Conn, dialled bool) *Session {
	s := rank(r).begin(context.Background(), conn)
	s.dialled = dialled
	if err := s.h.prepare(); err != nil {
		panic(err)
	}
	return s
}

// An acceptor that does not know the secret, or changes one bit of what it says, is not believed.
func TestWrongAcceptor(t *testing.T) {
	var old []byte // a reply to another connection
	for _, tc := range []struct {
		name   string
		reply  func(opening, b []byte) []byte
		answer func(confirmation, b []byte) []byte
	}{
		{"a reply of zeroes", func(_, b []byte) []byte { clear(b[sealedAt:]); return b }, nil},
		{"another nonce", func(_, b []byte) []byte { b[preambleSize] ^= 1; return b }, nil},
		{"another refusal", func(_, b []byte) []byte { b[sealedAt] ^= byte(otherRank); return b }, nil},
		{"the opening handed back", func(opening, _ []byte) []byte { return opening[:replySize] }, nil},
		{"an old reply", func(_, b []byte) []byte { return old }, nil},
		{"an answer of zeroes", nil, func(_, b []byte) []byte { clear(b[lengthSize:]); return b }},
		{"another answer", nil, func(_, b []byte) []byte { b[lengthSize] ^= 1; return b }},
		{"an answer that is too short", nil, func(_, b []byte) []byte { b[0]--; return b }},
		{"an answer without a seal", nil, func(_, b []byte) []byte { return []byte{tagSize - 1, 0} }},
		{"an answer that is too long", nil, func(_, b []byte) []byte { return []byte{0xff, 0xff} }},
		{"the confirmation handed back", nil, func(confirmation, _ []byte) []byte { return confirmation }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dc, ac := socketPair(t)
			go func() {
				s := raw(2, ac, false)
				if _, err := s.hearOpening(); err != nil {
					t.Error(err)
				}
				opening := bytes.Clone(s.buf[:openingSize])
				reply := bytes.Clone(s.buf[:s.putFirst(labelReply, []byte{0})])
				if old == nil {
					old = bytes.Clone(reply)
				}
				if tc.reply != nil {
					ac.Write(tc.reply(opening, reply))
					return
				}
				ac.Write(reply)
				if _, err := s.receive(labelConfirmation); err != nil {
					t.Error(err)
				}
				confirmation := bytes.Clone(s.buf[:lengthSize+len("dialled")+tagSize])
				ac.Write(tc.answer(confirmation, s.buf[:s.putPayload(labelAnswer, []byte("trusted"))]))
			}()
			if e := dial(context.Background(), rank(1), dc, 2, "dialled"); Why(e.err) != unproved {
				t.Error(e.err)
			}
			if _, err := dc.Write([]byte("x")); !errors.Is(err, net.ErrClosed) {
				t.Errorf("the connection is not closed: %v", err)
			}
		})
	}
}

// A dialler that cannot go on, stalls or closes, anywhere: nothing that has been recorded, of this job or another,
// opens anything; one that stalls, or sends a byte now and then, is given up after one limit.
func TestWrongDialler(t *testing.T) {
	other := func(h *Handshaker) { h.Secret = known("another secret, as long") }
	elsewhere := func(h *Handshaker) { h.Job = "other" }
	ours := record(t, rank(1), rank(2))
	fresh := func(then ...byte) []byte {
		s := raw(1, nil, true)
		return append(s.buf[:s.putFirst(labelOpening, identity{from: 1, to: 2}.encode())], then...)
	}
	type said struct {
		name  string
		bytes []byte
		why   Reason
		hear  int // bytes that it may hear
	}
	all := []said{
		{"a replay", ours, unproved, replySize},
		{"a replay of another job", record(t, rank(1, elsewhere), rank(2, elsewhere)), unproved, 0},
		{"a replay of a job of the same name", record(t, rank(1, other), rank(2, other)), unproved, 0},
		{"a replay of another pair of this job", record(t, rank(1), rank(3)), otherRank, replySize},
		{"an old confirmation to a new opening", fresh(ours[openingSize:]...), unproved, replySize},
		{"a confirmation that is too long", fresh(0xff, 0xff), unproved, replySize},
		{"rubbish to a new opening", fresh(bytes.Repeat([]byte{7}, 1801)...), unproved, replySize},
		{"one bit of the opening", slices.Concat(ours[:openingSize-1], []byte{ours[openingSize-1] ^ 1}), unproved, 0},
		{"another rank in it", slices.Concat(ours[:sealedAt], []byte{ours[sealedAt] ^ 1}, ours[sealedAt+1:]), unproved, 0},
	}
	for k, closed := range map[int]Reason{0: silent, 1: NotGorun, preambleSize - 1: NotGorun, preambleSize: NotGorun,
		sealedAt: NotGorun, openingSize - 1: NotGorun, openingSize: Gone, openingSize + 1: NotGorun,
		openingSize + lengthSize: NotGorun, len(ours) - 1: NotGorun} {
		all = append(all, said{fmt.Sprintf("closes after %d bytes", k), ours[:k], closed, replySize},
			said{fmt.Sprintf("stalls after %d bytes", k), ours[:k], slow, replySize})
	}
	for _, c := range all {
		conn, ac := socketPair(t)
		conn.Write(c.bytes)
		limit := hang
		if c.why == slow {
			limit = 30 * time.Millisecond
		} else {
			conn.(*net.TCPConn).CloseWrite()
		}
		if e := accept(rank(2, within(limit)), ac, ""); Why(e.err) != c.why {
			t.Errorf("%s: %v", c.name, e.err)
		}
		if heard, _ := io.ReadAll(conn); len(heard) > c.hear {
			t.Errorf("%s: heard %d bytes", c.name, len(heard))
		}
	}
	conn, ac := socketPair(t)
	drips := time.AfterFunc(0, func() {
		for i := 0; ; i++ {
			if _, err := conn.Write(ours[i%len(ours):][:1]); err != nil {
				return
			}
			time.Sleep(5 * time.Millisecond)
		}
	})
	defer drips.Stop()
	if e := accept(rank(2, within(50*time.Millisecond)), ac, ""); Why(e.err) != slow {
		t.Error("a byte now and then: ", e.err)
	}
}

// An acceptor that stalls or closes, anywhere.
func TestAbsentAcceptor(t *testing.T) {
	for _, k := range []int{0, 1, preambleSize, replySize - 1, replySize, replySize + 1, replySize + lengthSize} {
		for _, closes := range []bool{false, true} {
			dc, ac := socketPair(t)
			go func() {
				s := raw(2, ac, false)
				s.hearOpening()
				s.putFirst(labelReply, []byte{0})
				ac.Write(append(s.buf[:replySize:replySize], tagSize, 0)[:k])
				if closes {
					ac.(*net.TCPConn).CloseWrite()
				}
			}()
			limit := 30 * time.Millisecond
			if closes {
				limit = hang
			}
			e := dial(context.Background(), rank(1, within(limit)), dc, 2, "")
			if closes && !errors.Is(e.err, ErrTurnedAway) && k <= replySize {
				t.Errorf("the acceptor closes after %d bytes: %v", k, e.err)
			}
			if !closes && (Why(e.err) != slow || !errors.Is(e.err, os.ErrDeadlineExceeded) ||
				!strings.Contains(e.err.Error(), "no answer in 30ms")) {
				t.Errorf("the acceptor stalls after %d bytes: %v", k, e.err)
			}
		}
	}
}

// A context that ends, ends the session wherever it is.
func TestContext(t *testing.T) {
	enough := errors.New("enough")
	for _, where := range []string{"reply", "answer", "tls", "end"} {
		dc, ac := socketPair(t)
		ctx, cancel := context.WithCancelCause(context.Background())
		stalls := func(here string) {
			if here == where {
				time.AfterFunc(20*time.Millisecond, func() { cancel(enough) })
			}
		}
		d, a := rank(1, within(time.Hour)), rank(2) // so that only the context can end it
		d.TLS, a.TLS = where == "tls", where == "tls"
		if where != "reply" {
			go func() {
				if s, err := a.Accept(ac); err == nil && where != "answer" {
					s.Answer(nil)
				}
			}()
		}
		stalls("reply")
		s, err := d.Dial(ctx, dc, 2)
		if err == nil {
			stalls("answer")
			err = s.Confirm(nil)
		}
		if err == nil {
			if stalls("tls"); where == "end" {
				cancel(enough)
			}
			_, err = s.Finish()
		}
		if !errors.Is(err, enough) {
			t.Errorf("%s: %v", where, err)
		}
		if _, err := dc.Write([]byte("x")); !errors.Is(err, net.ErrClosed) {
			t.Errorf("%s: the connection is not closed: %v", where, err)
		}
		cancel(nil)
	}
}

// A dialler that proves itself and then does not begin with TLS.
func TestNoTLSFollows(t *testing.T) {
	if err := longer(50*time.Millisecond, func(limit time.Duration) error {
		dc, ac := socketPair(t)
		done := make(chan error, 1)
		go func() { done <- accept(rank(2, withTLS, within(limit)), ac, "").err }()
		s, err := rank(1, withTLS).Dial(context.Background(), dc, 2)
		if err == nil {
			err = s.Confirm(nil)
		}
		if err != nil {
			return errors.Join(err, <-done)
		}
		if err := <-done; Why(err) != Broken || !errors.Is(err, os.ErrDeadlineExceeded) {
			return fmt.Errorf("the acceptor: %w", err)
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
}

func TestNoSecret(t *testing.T) {
	dc, _ := socketPair(t)
	lost := rank(1, func(h *Handshaker) { h.Secret = func() ([]byte, error) { return nil, errors.New("lost") } })
	if e := dial(context.Background(), lost, dc, 2, ""); e.err == nil || !strings.Contains(e.err.Error(), "secret: lost") {
		t.Error(e.err)
	}
	_, a := both(t, rank(1), rank(2, func(h *Handshaker) { h.Secret = known("short") }), 2)
	if Why(a.err) != helpless || !strings.Contains(a.err.Error(), "5 bytes") {
		t.Error(a.err)
	}
}

// Dialling again helps against an acceptor that turns away, for a while; nothing else is tried again.
func TestRetry(t *testing.T) {
	turned := TurnedAway(io.EOF)
	for _, tc := range []struct {
		name     string
		errs     []error
		patience time.Duration
		calls    int
	}{
		{"at once", []error{nil}, hang, 1},
		{"the third time", []error{turned, turned, nil}, hang, 3},
		{"another error", []error{turned, io.ErrNoProgress, nil}, hang, 2},
		{"no patience", []error{turned, nil}, -1, 1},
		{"a full queue, whatever the patience", []error{syscall.EAGAIN, syscall.EAGAIN, syscall.EAGAIN, nil}, -1, 4},
	} {
		calls := 0
		err := Retry(context.Background(), tc.patience, func() error { calls++; return tc.errs[calls-1] })
		if calls != tc.calls || err != tc.errs[calls-1] {
			t.Errorf("%s: %d calls, %v", tc.name, calls, err)
		}
	}
	calls := 0
	if err := Retry(context.Background(), 5*time.Millisecond, func() error { // the process was stopped meanwhile
		if calls++; calls == 1 {
			time.Sleep(10 * time.Millisecond)
			return turned
		}
		return nil
	}); err != nil {
		t.Errorf("a call that has taken longer than the patience: %v", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	for _, again := range []error{turned, syscall.EAGAIN} {
		if err := Retry(ctx, hang, func() error { return again }); err != again {
			t.Errorf("the context has ended: %v, want %v", err, again)
		}
	}
	if err := TurnedAway(io.ErrNoProgress); err != io.ErrNoProgress {
		t.Error(err)
	}
}
