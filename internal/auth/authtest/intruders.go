package authtest

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/gorun-mpi/mpi/internal/auth"
	"github.com/gorun-mpi/mpi/internal/testkit/proc"
)

// Listener is a listening side. Its handshakes have a time limit of a second or so.
type Listener struct {
	Dial    func() (net.Conn, error) // a new connection to it
	Member  func() *auth.Handshaker  // of a rank of the job, with a Limit that a slow machine keeps
	To      int                      // the rank that listens
	Refused func() uint64            // connections so far
	Works   func() error             // lets one more rank of the job come in
}

// hang is when a test is given up. It says nothing about speed.
const hang = time.Minute

// tap keeps what is written.
type tap struct {
	net.Conn
	written bytes.Buffer
}

func (c *tap) Write(b []byte) (int, error) {
	c.written.Write(b)
	return c.Conn.Write(b)
}

func (l Listener) dial(t *testing.T) net.Conn {
	t.Helper()
	conn, err := l.Dial()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// opening is what a member says before the listener has proved anything: overheard, it may be said again.
func (l Listener) opening(t *testing.T) []byte {
	t.Helper()
	c := &tap{Conn: l.dial(t)}
	s, err := l.Member().Dial(context.Background(), c, l.To)
	if err != nil {
		t.Fatal("a rank of the job: ", err)
	}
	s.Close() // which is not refused: happy eyeballs does so
	return c.written.Bytes()
}

// Run lets intruders and a lying member come. They are told nothing, or as good as nothing; they are counted; and ranks
// of the job come in all the same.
func Run(t *testing.T, l Listener) {
	opening := l.opening(t)
	noise := make([]byte, 1000)
	for i := range noise {
		noise[i] = byte(rand.Uint32())
	}
	const reply = 57 // bytes; an overheard opening is answered by them
	for _, c := range []struct {
		name string
		says []byte
		hear int
	}{
		{"random bytes", noise, 0},
		{"HTTP", []byte("GET / HTTP/1.1\r\n\r\n"), 0},
		{"PMI-1", []byte("cmd=initack pmiid=0\n"), 0},
		{"half open", nil, 0},
		{"a stall in the middle", opening[:40], 0},
		{"a wrong proof", slices.Concat(opening[:len(opening)-1], []byte{^opening[len(opening)-1]}), 0},
		{"a replay that stalls", opening, reply},
		{"a replay and a made up proof", slices.Concat(opening, []byte{30, 0}, noise), reply},
	} {
		t.Run(c.name, func(t *testing.T) {
			l.refuses(t, func(conn net.Conn) {
				conn.Write(c.says)
				conn.SetReadDeadline(time.Now().Add(hang))
				if heard, err := io.ReadAll(conn); len(heard) > c.hear || errors.Is(err, os.ErrDeadlineExceeded) {
					t.Errorf("hears %d bytes, and then %v", len(heard), err)
				}
			})
		})
	}
	for name, change := range map[string]func(h *auth.Handshaker, to *int){
		"another secret": func(h *auth.Handshaker, _ *int) {
			h.Secret = func() ([]byte, error) { return noise[:32], nil }
		},
		"another job":                    func(h *auth.Handshaker, _ *int) { h.Job += "x" },
		"another protocol":               func(h *auth.Handshaker, _ *int) { h.Protocol += "x" },
		"the listening rank's own name":  func(h *auth.Handshaker, _ *int) { h.Rank = l.To },
		"a rank that is none of the job": func(h *auth.Handshaker, _ *int) { h.Rank = h.Size },
		"another rank is wanted":         func(h *auth.Handshaker, to *int) { *to = h.Rank },
		"TLS or not":                     func(h *auth.Handshaker, _ *int) { h.TLS = !h.TLS },
	} {
		t.Run(name, func(t *testing.T) {
			l.refuses(t, func(conn net.Conn) {
				h, to := l.Member(), l.To
				change(h, &to)
				if _, err := h.Dial(context.Background(), conn, to); auth.Why(err) == 0 {
					t.Errorf("was let in, or: %v", err)
				}
			})
		})
	}
	t.Run("flood", func(t *testing.T) { l.flood(t, opening) })
}

// flood makes ten thousand connections, with -short two thousand, that say a part of an opening, and of which more than
// may be pending stay open, while ranks of the job come in.
func (l Listener) flood(t *testing.T, opening []byte) {
	const floods, stay = 4, 100
	each := 2500
	if testing.Short() {
		each = 500
	}
	before := l.Refused()
	var all sync.WaitGroup
	for range floods {
		all.Go(func() {
			var open []net.Conn
			for i := range each {
				conn, err := l.Dial()
				if err != nil {
					time.Sleep(time.Millisecond)
					continue // closed, or there is no room, before it was in
				}
				conn.Write(opening[:i%len(opening)])
				if open = append(open, conn); len(open) > stay {
					open[0].Close()
					open = open[1:]
				}
			}
			for _, conn := range open {
				conn.Close()
			}
		})
	}
	for range 3 {
		l.works(t)
	}
	all.Wait()
	l.works(t)
	if n := l.Refused() - before; n < uint64(floods*each/4) {
		t.Errorf("%d connections were counted", n)
	}
}

// refuses checks that one more connection is counted, and that others come in.
func (l Listener) refuses(t *testing.T, say func(net.Conn)) {
	t.Helper()
	before := l.Refused()
	conn := l.dial(t)
	say(conn)
	proc.Eventually(t, "a refusal to be counted", func() bool { return l.Refused() > before })
	l.works(t)
}

// works checks that one more rank gets in, in five attempts: where the machine stands still for longer than the
// listener's time limit, a rank is as slow as an intruder.
func (l Listener) works(t *testing.T) {
	t.Helper()
	var err error
	for range 5 {
		if err = l.Works(); err == nil {
			return
		}
	}
	t.Error("a rank of the job is kept out: ", err)
}
