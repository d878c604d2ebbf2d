package pmi

import (
	"context"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// sockets returns both ends of a socketpair.
func sockets(t testing.TB) (a, b net.Conn) {
	t.Helper()
	p, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	conns := make([]net.Conn, 2)
	for i, fd := range p {
		f := os.NewFile(uintptr(fd), "test")
		if conns[i], err = net.FileConn(f); err != nil {
			t.Fatal(err)
		}
		f.Close()
		t.Cleanup(func() { conns[i].Close() })
	}
	return conns[0], conns[1]
}

// rankEnv is the environment of a rank whose socket is made from conn.
func rankEnv(t testing.TB, conn net.Conn, rank, size int, job string) map[string]string {
	t.Helper()
	f, err := conn.(interface{ File() (*os.File, error) }).File()
	if err != nil {
		t.Fatal(err)
	}
	fd, err := syscall.Dup(int(f.Fd())) // Join takes it over
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
	conn.Close()
	env := map[string]string{EnvFD: strconv.Itoa(fd), EnvRank: strconv.Itoa(rank), EnvSize: strconv.Itoa(size)}
	if job != "" {
		env[EnvJob] = job
	}
	return env
}

func from(m map[string]string) lookup { return func(name string) string { return m[name] } }

// world starts a server and joins size clients, over socketpairs or over TCP.
func world(t testing.TB, size int, tcp bool, o Options) (*Server, []*Client) {
	t.Helper()
	s := NewServer(size, o)
	var served sync.WaitGroup
	envs := make([]map[string]string, size)
	if tcp {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		s.Listen(ln)
		for rank := range envs {
			envs[rank] = map[string]string{EnvPort: ln.Addr().String(), EnvID: strconv.Itoa(rank), EnvJob: s.Name(),
				EnvKey: s.Key()}
		}
	} else {
		for rank := range envs {
			a, b := sockets(t)
			served.Go(func() { s.ServeConn(rank, a) })
			envs[rank] = rankEnv(t, b, rank, size, s.Name())
		}
	}
	t.Cleanup(func() {
		s.Close()
		done := make(chan struct{})
		go func() { served.Wait(); close(done) }()
		within(t, done, "the server's goroutines to end")
	})
	clients := make([]*Client, size)
	for rank := range clients {
		c, err := join(context.Background(), from(envs[rank]))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		clients[rank] = c
	}
	return s, clients
}

// hang is after how long what does not come is missing.
const hang = time.Minute

func within(t testing.TB, c <-chan struct{}, what string) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(hang):
		t.Errorf("waited %v for %s", hang, what)
	}
}

func nextEvent(t testing.TB, s *Server) Event {
	t.Helper()
	select {
	case e := <-s.Events():
		return e
	case <-time.After(hang):
		t.Fatalf("no event within %v", hang)
		return Event{}
	}
}

// wantEvent skips events of other kinds.
func wantEvent(t testing.TB, s *Server, kind EventKind, rank int) Event {
	t.Helper()
	for {
		if e := nextEvent(t, s); e.Kind == kind && e.Rank == rank {
			return e
		}
	}
}

// each runs f for all clients at once.
func each(clients []*Client, f func(c *Client)) {
	var all sync.WaitGroup
	for _, c := range clients {
		all.Go(func() { f(c) })
	}
	all.Wait()
}

// fakeLauncher is the other end of a client, driven by the test: what it expects and what it says.
type fakeLauncher struct {
	t    testing.TB
	conn net.Conn
	in   lineReader
}

func newFake(t testing.TB, conn net.Conn) *fakeLauncher {
	f := &fakeLauncher{t: t, conn: conn}
	f.in.r = conn
	return f
}

// script plays a transcript: lines that begin with ">" are expected, those with "<" are sent. It returns at a
// difference.
func (f *fakeLauncher) script(text string) {
	for l := range strings.Lines(text) {
		l = strings.TrimSpace(l)
		if l == "" {
			continue
		}
		body := strings.ReplaceAll(strings.TrimSpace(l[1:]), `\n`, "\n")
		if l[0] == '<' {
			if _, err := io.WriteString(f.conn, body); err != nil {
				f.t.Errorf("sending %q: %v", body, err)
				return
			}
			continue
		}
		got, err := f.in.next()
		if err != nil || string(got)+"\n" != body {
			f.t.Errorf("the client sent %q (%v), want %q", got, err, body)
			f.conn.Close()
			return
		}
	}
}
