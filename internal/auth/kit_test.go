package auth

import (
	"context"
	"io"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/gorun-mpi/mpi/internal/testkit/leak"
)

// hang is when a test is given up. It says nothing about speed.
const hang = time.Minute

func TestMain(m *testing.M) { os.Exit(leak.VerifyMain(m.Run)) }

func known(secret string) func() ([]byte, error) {
	return func() ([]byte, error) { return []byte(secret), nil }
}

// rank makes a handshaker of a job of four. It gives up when the test would: a test that waits for a limit sets a
// shorter one.
func rank(r int, change ...func(*Handshaker)) *Handshaker {
	h := &Handshaker{Protocol: "test 1", Job: "job", Rank: r, Size: 4, Limit: hang, Patience: hang,
		Secret: known("a secret of thirty-two bytes ...")}
	for _, f := range change {
		f(h)
	}
	return h
}

func withTLS(h *Handshaker) { h.TLS = true }

func within(limit time.Duration) func(*Handshaker) {
	return func(h *Handshaker) { h.Limit, h.Patience = limit, limit }
}

// socketPair is two ends of a TCP connection: the one that has dialled, and the one that was accepted.
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

// end is one side's result of a whole handshake.
type end struct {
	*Session
	net.Conn
	err error
}

// dial is a dialler that says "dialled".
func dial(ctx context.Context, h *Handshaker, conn net.Conn, to int, payload string) (e end) {
	if e.Session, e.err = h.Dial(ctx, conn, to); e.err == nil {
		e.err = e.Confirm([]byte(payload))
	}
	if e.err == nil {
		e.Conn, e.err = e.Finish()
	}
	return e
}

// accept is an acceptor that answers payload.
func accept(h *Handshaker, conn net.Conn, payload string) (e end) {
	if e.Session, e.err = h.Accept(conn); e.err != nil {
		conn.Close()
		return e
	}
	if e.err = e.Answer([]byte(payload)); e.err == nil {
		e.Conn, e.err = e.Finish()
	}
	return e
}

// both lets d dial rank to, on sockets whose other end a has.
func both(t testing.TB, d, a *Handshaker, to int) (de, ae end) {
	t.Helper()
	dc, ac := socketPair(t)
	var wg sync.WaitGroup
	wg.Go(func() { ae = accept(a, ac, "accepted") })
	ctx, cancel := context.WithTimeout(context.Background(), hang)
	defer cancel()
	de = dial(ctx, d, dc, to, "dialled")
	wg.Wait()
	return de, ae
}

// talk sends a word.
func talk(t *testing.T, from, to net.Conn) {
	t.Helper()
	if _, err := from.Write([]byte("word")); err != nil {
		t.Fatal(err)
	}
	var b [4]byte
	if _, err := io.ReadFull(to, b[:]); err != nil || string(b[:]) != "word" {
		t.Fatalf("%q, %v", b, err)
	}
}

// recorder keeps what is written, by message.
type recorder struct {
	net.Conn
	written [][]byte
}

func (r *recorder) Write(b []byte) (int, error) {
	r.written = append(r.written, append([]byte(nil), b...))
	return r.Conn.Write(b)
}

// record returns what a dialler of the job has said in a handshake that came to its end.
func record(t testing.TB, d, a *Handshaker) []byte {
	t.Helper()
	dc, ac := socketPair(t)
	var wg sync.WaitGroup
	wg.Go(func() { accept(a, ac, "") })
	r := &recorder{Conn: dc}
	e := dial(context.Background(), d, r, a.Rank, "recorded")
	wg.Wait()
	if e.err != nil || len(r.written) != 2 {
		t.Fatal(e.err, len(r.written))
	}
	return append(r.written[0], r.written[1]...)
}

// longer has a test that lives with a short limit tried again with a longer one where the machine stood still for
// longer than what had to be in time for it. It returns what was wrong the last time.
func longer(limit time.Duration, try func(limit time.Duration) error) (err error) {
	for ; ; limit *= 5 {
		if err = try(limit); err == nil || 5*limit > hang {
			return err
		}
	}
}
