package pmi

import (
	"bytes"
	"context"
	"encoding/hex"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/gorun-mpi/mpi/internal/auth"
	"github.com/gorun-mpi/mpi/internal/auth/authtest"
	"github.com/gorun-mpi/mpi/internal/testkit/proc"
)

// listening starts a server for ranks that dial, and returns what a rank's environment is.
func listening(t testing.TB, size int, limit time.Duration, at string) (*Server, func(rank int) map[string]string) {
	t.Helper()
	ln, err := net.Listen("tcp", at)
	if err != nil && strings.HasPrefix(at, "[") {
		t.Skipf("this host has no IPv6: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return listeningOn(t, size, limit, ln)
}

func listeningOn(t testing.TB, size int, limit time.Duration, ln net.Listener,
) (*Server, func(rank int) map[string]string) {
	t.Helper()
	s := NewServer(size, Options{})
	s.authLimit = limit
	s.Listen(ln)
	t.Cleanup(s.Close)
	return s, func(rank int) map[string]string {
		return map[string]string{EnvPort: ln.Addr().String(), EnvID: strconv.Itoa(rank), EnvJob: s.Name(),
			EnvKey: s.Key()}
	}
}

func with(env map[string]string, name, value string) lookup {
	env = maps.Clone(env)
	env[name] = value
	return from(env)
}

// tap is between ranks and server, and keeps all that passes.
func tap(t *testing.T, to string) (addr string, seen func() string) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var all bytes.Buffer
	var pumps sync.WaitGroup
	pump := func(dst, src net.Conn) {
		defer dst.Close()
		buf := make([]byte, 4096)
		for {
			n, err := src.Read(buf)
			mu.Lock()
			all.Write(buf[:n])
			mu.Unlock()
			if _, werr := dst.Write(buf[:n]); err != nil || werr != nil {
				return
			}
		}
	}
	pumps.Go(func() {
		for {
			a, err := ln.Accept()
			if err != nil {
				return
			}
			b, err := net.Dial("tcp", to)
			if err != nil {
				a.Close()
				continue
			}
			pumps.Go(func() { pump(a, b) })
			pumps.Go(func() { pump(b, a) })
		}
	})
	t.Cleanup(func() { ln.Close(); pumps.Wait() })
	return ln.Addr().String(), func() string {
		mu.Lock()
		defer mu.Unlock()
		return all.String()
	}
}

func TestDialled(t *testing.T) {
	for _, at := range []string{"127.0.0.1:0", "[::1]:0"} {
		t.Run(at, func(t *testing.T) {
			s, env := listening(t, 3, time.Minute, at)
			addr, seen := tap(t, env(0)[EnvPort])
			clients := make([]*Client, 3)
			for rank := range clients {
				c, err := join(context.Background(), with(env(rank), EnvPort, addr))
				if err != nil {
					t.Fatal(err)
				}
				defer c.Close()
				clients[rank] = c
				if !bytes.Equal(c.Secret(), s.secret) || c.Rank() != rank || c.Size() != 3 || c.launcher != "gorun" {
					t.Errorf("rank %d is %d of %d of %s, its secret has %d bytes", rank, c.Rank(), c.Size(), c.launcher,
						len(c.Secret()))
				}
				wantEvent(t, s, EventInit, rank)
			}
			each(clients, func(c *Client) {
				if err := c.Put(t.Context(), fmt.Sprint("k", c.Rank()), []byte{byte(c.Rank())}); err != nil {
					t.Error(err)
				}
				if err := c.Fence(t.Context()); err != nil {
					t.Error(err)
				}
				if v, err := c.Get(t.Context(), fmt.Sprint("k", (c.Rank()+1)%3)); err != nil || v[0] != byte((c.Rank()+1)%3) {
					t.Error(v, err)
				}
				if err := c.Finalize(t.Context()); err != nil {
					t.Error(err)
				}
			})
			for what, secret := range map[string][]byte{"key": s.opts.Key, "secret": s.secret} {
				for _, text := range []string{string(secret), b64.EncodeToString(secret), hex.EncodeToString(secret)} {
					if strings.Contains(seen(), text) {
						t.Errorf("the %s travels in clear", what)
					}
				}
			}
			if n := s.Refused(); n != 0 {
				t.Errorf("%d refused", n)
			}
		})
	}
}

// starved is a listener of a process with so few descriptors that it has one for connections.
type starved struct {
	*net.TCPListener
	taken, asked atomic.Int32
}

// freeing gives the descriptor back.
type freeing struct {
	net.Conn
	back func()
}

func (f *freeing) Close() error {
	f.back()
	return f.Conn.Close()
}

func (s *starved) Accept() (net.Conn, error) {
	s.asked.Add(1)
	if !s.taken.CompareAndSwap(0, 1) {
		return nil, &net.OpError{Op: "accept", Err: syscall.EMFILE}
	}
	conn, err := s.TCPListener.Accept()
	return &freeing{conn, sync.OnceFunc(func() { s.taken.Store(0) })}, err
}

// A launcher without a free descriptor hangs up on none while no other connection waits, and on one that has proved
// nothing as soon as a rank waits.
func TestDialledWithoutDescriptors(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	one := &starved{TCPListener: ln.(*net.TCPListener)}
	s, env := listeningOn(t, 1, time.Hour, one) // so that only a connection that makes room goes
	stranger, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer stranger.Close()
	proc.Eventually(t, "many looks for another one", func() bool { return one.asked.Load() > 6 })
	if n := s.Refused(); n != 0 {
		t.Fatalf("%d refused, and none waits", n)
	}
	c, err := join(t.Context(), from(env(0)))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	wantEvent(t, s, EventInit, 0)
	if n := s.Refused(); n != 1 {
		t.Errorf("%d refused: only the stranger has to go", n)
	}
}

// A key of another job, one that is none, none at all, and a launcher of another job.
func TestWrongKey(t *testing.T) {
	defer func(d time.Duration) { patienceDialling = d }(patienceDialling)
	patienceDialling = time.Millisecond
	s, env := listening(t, 1, time.Minute, "127.0.0.1:0")
	other := b64.EncodeToString(random(keySize))
	for _, c := range []struct{ name, value, says string }{
		{EnvKey, other, "another secret"},
		{EnvKey, "short", "is no key"},
		{EnvKey, other[1:] + "!", "is no key"},
		{EnvKey, "", "initack"},
		{EnvJob, "another", "another job"},
		{EnvID, "1", "rank 1 is none of its ranks"},
	} {
		_, err := join(context.Background(), with(env(0), c.name, c.value))
		if err == nil || !strings.Contains(err.Error(), c.says) ||
			c.name == EnvKey && c.value != "" && strings.Contains(err.Error(), c.value) {
			t.Errorf("%s=%q: %v", c.name, c.value, err)
		}
	}
	if s.State(0).Joined || s.Refused() == 0 {
		t.Errorf("%+v, %d refused", s.State(0), s.Refused())
	}
	c, err := join(context.Background(), from(env(0)))
	if err != nil {
		t.Fatal("the right key after wrong ones: ", err)
	}
	c.Close()
}

// An answer that a launcher would not give.
func TestAdmitted(t *testing.T) {
	for _, c := range []struct {
		answer []byte
		says   string
	}{
		{nil, "makes no sense"},
		{[]byte{0, 4, 0, 0, 0}, "makes no sense"},
		{[]byte{0, 3, 0, 0, 0, 1}, "makes no sense"},
		{[]byte{1}, "makes no sense"},
		{[]byte{2, 4, 0, 0, 0, 1}, "makes no sense"},
		{[]byte("\x01no"), `refused rank 3: "no"`},
	} {
		if err := newClient(nil, 3, 0).admitted(c.answer); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%v: %v", c.answer, err)
		}
	}
}

// The wire-up authenticates by package auth.
func TestIntruders(t *testing.T) {
	defer func(d time.Duration) { patienceDialling = d }(patienceDialling)
	patienceDialling = time.Minute // on a slow machine a rank is not within the limit at first
	const size = 64
	s, env := listening(t, size, time.Second, "127.0.0.1:0")
	next := 1
	authtest.Run(t, authtest.Listener{
		Dial: func() (net.Conn, error) { return net.Dial("tcp", env(0)[EnvPort]) },
		Member: func() *auth.Handshaker {
			return &auth.Handshaker{Protocol: protocol, Job: s.Name(), Rank: 0, Size: size, Patience: time.Minute,
				Secret: func() ([]byte, error) { return s.opts.Key, nil }}
		},
		To:      auth.Launcher,
		Refused: s.Refused,
		Works: func() error {
			next++
			c, err := join(context.Background(), from(env(next-1)))
			if err == nil {
				err = c.Close()
			}
			return err
		},
	})
	if st := s.State(0); st != (State{}) || s.conns[0] != nil || len(s.kvs) != 0 {
		t.Errorf("rank 0: %+v, %d keys", st, len(s.kvs))
	}
}

// A second process that proves itself and claims to be the same rank gets the reason for its refusal.
func TestRankTwice(t *testing.T) {
	_, env := listening(t, 1, time.Minute, "127.0.0.1:0")
	c, err := join(context.Background(), from(env(0)))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_, err = join(context.Background(), from(env(0)))
	if err == nil || !strings.Contains(err.Error(), "connected already") {
		t.Error(err)
	}
}

// forget is a program that says what is left of the key after Join.
func forget() error {
	key := os.Getenv(EnvKey)
	c, err := Join(context.Background())
	if err != nil {
		return err
	}
	defer c.Close()
	env, err := os.ReadFile("/proc/self/environ")
	if err != nil && runtime.GOOS == "linux" {
		return err
	}
	child, err := exec.Command("env").Output()
	if err != nil {
		return err
	}
	fmt.Printf("key %d secret %d getenv %q kernel %v child %v\n", len(key), len(c.Secret()), os.Getenv(EnvKey),
		bytes.Contains(env, []byte(key)), bytes.Contains(child, []byte(EnvKey)))
	return nil
}

func TestJoinForgetsTheKey(t *testing.T) {
	_, env := listening(t, 1, time.Minute, "127.0.0.1:0")
	var more []string
	for name, value := range env(0) {
		more = append(more, name+"="+value)
	}
	out, err := proc.Run(t, "forget", append(more, "LAST=1")...)
	if want := "key 43 secret 32 getenv \"\" kernel false child false\n"; err != nil || out != want {
		t.Errorf("%v: %q, want %q", err, out, want)
	}
}

func TestPeerTimeoutVariable(t *testing.T) {
	for text, want := range map[string]time.Duration{"": 30 * time.Second, "1s": time.Second, "2m": 2 * time.Minute} {
		if d, err := peerTimeout(text); err != nil || d != want {
			t.Errorf("%q: %v %v", text, d, err)
		}
	}
	for _, text := range []string{"0", "999ms", "soon", "-3s"} {
		if _, err := peerTimeout(text); err == nil || !strings.Contains(err.Error(), EnvPeerTimeout) {
			t.Errorf("%q: %v", text, err)
		}
	}
}
