package pmi

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gorun-mpi/mpi/internal/testkit/proc"
)

// proving starts a server that wants proofs, and returns what a rank's environment is.
func proving(t testing.TB, size int, patience time.Duration, at string) (*Server, func(rank int) map[string]string) {
	t.Helper()
	ln, err := net.Listen("tcp", at)
	if err != nil && strings.HasPrefix(at, "[") {
		t.Skipf("this host has no IPv6: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	s := NewServer(size, Options{RequireProof: true})
	s.patience = patience
	ended := make(chan struct{})
	go func() { defer close(ended); s.ServeListener(ln) }()
	t.Cleanup(func() { ln.Close(); s.Close(); within(t, ended, "the server to end") })
	return s, func(rank int) map[string]string {
		return map[string]string{EnvPort: ln.Addr().String(), EnvID: strconv.Itoa(rank), EnvJob: s.Name(), EnvKey: s.Key()}
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

func TestProof(t *testing.T) {
	for _, at := range []string{"127.0.0.1:0", "[::1]:0"} {
		t.Run(at, func(t *testing.T) {
			s, env := proving(t, 3, time.Minute, at)
			addr, seen := tap(t, env(0)[EnvPort])
			clients := make([]*Client, 3)
			for rank := range clients {
				c, err := join(context.Background(), with(env(rank), EnvPort, addr))
				if err != nil {
					t.Fatal(err)
				}
				defer c.Close()
				clients[rank] = c
				if !bytes.Equal(c.Secret(), s.secret) || c.key != nil {
					t.Errorf("rank %d: the secret is %d bytes long, the key kept: %v", rank, len(c.Secret()), c.key != nil)
				}
				wantEvent(t, s, EventInit, rank)
			}
			each(clients, func(c *Client) {
				if err := c.Put(fmt.Sprint("k", c.Rank()), []byte{byte(c.Rank())}); err != nil {
					t.Error(err)
				}
				if err := c.Fence(t.Context()); err != nil {
					t.Error(err)
				}
				if v, err := c.Get(fmt.Sprint("k", (c.Rank()+1)%3)); err != nil || v[0] != byte((c.Rank()+1)%3) {
					t.Error(v, err)
				}
				if err := c.Finalize(); err != nil {
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
			if n := s.Strangers(); n != (Strangers{}) {
				t.Errorf("strangers: %+v", n)
			}
		})
	}
}

// A key of another job, one that is none, and a launcher that does not know it.
func TestWrongKey(t *testing.T) {
	s, env := proving(t, 1, time.Minute, "127.0.0.1:0")
	other := b64.EncodeToString(random(keySize))
	for value, want := range map[string]string{
		other:           "does not know this job's key",
		"short":         "is no key",
		other[1:] + "!": "is no key",
	} {
		_, err := join(context.Background(), with(env(0), EnvKey, value))
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), value) {
			t.Errorf("%q: %v", value, err)
		}
	}
	if _, err := join(context.Background(), with(env(0), EnvJob, "another")); err == nil || !strings.Contains(err.Error(), "another") {
		t.Errorf("a launcher of another job: %v", err)
	}
	if s.State(0).Joined {
		t.Error("rank 0 has joined")
	}
	c, err := join(context.Background(), from(env(0)))
	if err != nil {
		t.Fatal("the right key after wrong ones: ", err)
	}
	c.Close()

	bare, _ := world(t, 1, true, Options{}) // of a server without a key: it cannot prove anything
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	keyless := NewServer(1, Options{Name: bare.Name()})
	defer keyless.Close()
	go keyless.ServeListener(ln)
	_, err = join(context.Background(), from(map[string]string{EnvPort: ln.Addr().String(), EnvID: "0", EnvJob: bare.Name(), EnvKey: other}))
	if err == nil || !strings.Contains(err.Error(), "does not know this job's key") {
		t.Errorf("a launcher without a key: %v", err)
	}
}

func dialRaw(t testing.TB, addr string) *raw {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	conn.SetDeadline(time.Now().Add(time.Minute))
	r := &raw{t: t, conn: conn}
	r.in.r = conn
	return r
}

func (r *raw) initack(rank int) {
	r.t.Helper()
	r.ask(fmt.Sprintf("cmd=initack pmiid=%d", rank), "cmd=initack rc=0")
	for range 3 {
		if _, err := r.in.next(); err != nil {
			r.t.Fatal(err)
		}
	}
}

// ended: the server has nothing more to say.
func (r *raw) ended() {
	r.t.Helper()
	if b, err := r.in.next(); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		r.t.Errorf("got %q (%v) where the connection was to end", b, err)
	}
}

// What somebody without a proof is refused: everything that the job has, and the place of the rank.
func TestUnproved(t *testing.T) {
	s, env := proving(t, 2, time.Minute, "127.0.0.1:0")
	addr := env(0)[EnvPort]
	for _, command := range []string{
		"cmd=put kvsname=" + s.Name() + " key=a value=b", "cmd=get kvsname=" + s.Name() + " key=PMI_process_mapping", "cmd=barrier_in",
		"cmd=abort exitcode=3", "cmd=finalize", "cmd=publish_name service=a port=b", "cmd=lookup_name service=a", "cmd=dance", "mcmd=spawn",
	} {
		r := dialRaw(t, addr)
		r.initack(0)
		r.ask("cmd=init pmi_version=1", initReply)
		r.ask("cmd=gorun_hello version=1", "cmd=gorun_welcome rc=0 version=1") // and no secret
		r.send(command + "\n")
		b, err := r.in.next()
		if err != nil || !strings.Contains(string(b), " rc=-1 ") || !strings.Contains(string(b), EnvKey) {
			t.Errorf("%s: answered %q (%v)", command, b, err)
		}
		r.ended()
	}
	if st := s.State(0); st != (State{}) {
		t.Errorf("rank 0: %+v", st)
	}
	for i := range len(s.Events()) {
		if e := <-s.Events(); e.Rank != -1 || e.Kind != EventGarbage {
			t.Errorf("event %d: %+v", i, e)
		}
	}
	stock := env(1)
	delete(stock, EnvKey)
	c, err := join(context.Background(), from(stock))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.Put("a", nil); err == nil || !strings.Contains(err.Error(), "this job is only for programs") || c.Secret() != nil {
		t.Errorf("Put without a proof: %v", err)
	}
}

// Wrong proofs: made up, the launcher's own handed back, one of another connection, without a hello, two hellos.
func TestWrongProofs(t *testing.T) {
	s, env := proving(t, 1, time.Minute, "127.0.0.1:0")
	hello := func(r *raw, nonce []byte) (string, agreement) {
		r.initack(0)
		r.ask("cmd=init pmi_version=1", initReply)
		r.send("cmd=gorun_hello version=1 nonce=" + b64.EncodeToString(nonce) + "\n")
		b, err := r.in.next()
		l, perr := parseLine(b)
		if err != nil || perr != nil {
			t.Fatal(err, perr)
		}
		n, ok := nonceIn(l)
		proof, _ := l.get("proof")
		if !ok {
			t.Fatalf("no nonce in %s", l)
		}
		return proof, agreement{job: s.Name(), rank: 0, size: 1, rankNonce: nonce, launcher: n}
	}
	nonce := random(nonceSize)
	old := dialRaw(t, env(0)[EnvPort])
	_, before := hello(old, nonce)
	for name, proof := range map[string]func(mirror string, a agreement) string{
		"made up":                func(string, agreement) string { return b64.EncodeToString(random(32)) },
		"empty":                  func(string, agreement) string { return "" },
		"no base64":              func(string, agreement) string { return "====" },
		"the launcher's own":     func(mirror string, _ agreement) string { return mirror },
		"of a connection before": func(string, agreement) string { return b64.EncodeToString(before.mac(s.opts.Key, labelRank)) },
		"of another rank": func(_ string, a agreement) string {
			a.rank = 1
			return b64.EncodeToString(a.mac(s.opts.Key, labelRank))
		},
		"of another job": func(_ string, a agreement) string {
			a.job += "x"
			return b64.EncodeToString(a.mac(s.opts.Key, labelRank))
		},
		"under a key of all zeroes":   func(_ string, a agreement) string { return b64.EncodeToString(a.mac(make([]byte, keySize), labelRank)) },
		"under the label of the seal": func(_ string, a agreement) string { return b64.EncodeToString(a.mac(s.opts.Key, labelSeal)) },
	} {
		t.Run(name, func(t *testing.T) {
			r := dialRaw(t, env(0)[EnvPort])
			mirror, a := hello(r, nonce)
			r.send("cmd=gorun_proof proof=" + proof(mirror, a) + "\n")
			if b, err := r.in.next(); err != nil || !strings.HasPrefix(string(b), "cmd=gorun_trusted rc=-1 ") {
				t.Errorf("answered %q (%v)", b, err)
			}
			r.ended()
		})
	}
	r := dialRaw(t, env(0)[EnvPort])
	hello(r, nonce)
	r.send("cmd=gorun_hello version=1 nonce=" + b64.EncodeToString(nonce) + "\n")
	r.ended()
	r = dialRaw(t, env(0)[EnvPort])
	r.initack(0)
	r.ask("cmd=init pmi_version=1", initReply)
	r.send("cmd=gorun_proof proof=\n")
	r.next(t, "cmd=gorun_trusted rc=-1")
	r.ended()

	r = dialRaw(t, env(0)[EnvPort]) // and the right one
	_, a := hello(r, nonce)
	r.send("cmd=gorun_proof proof=" + b64.EncodeToString(a.mac(s.opts.Key, labelRank)) + "\n")
	r.next(t, "cmd=gorun_trusted rc=0")
}

func (r *raw) next(t *testing.T, prefix string) {
	t.Helper()
	if b, err := r.in.next(); err != nil || !strings.HasPrefix(string(b), prefix) {
		t.Errorf("got %q (%v), want %q", b, err, prefix)
	}
}

// A second connection with the right proof is told why it is not wanted.
func TestRankTwice(t *testing.T) {
	_, env := proving(t, 1, time.Minute, "127.0.0.1:0")
	c, err := join(context.Background(), from(env(0)))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := join(context.Background(), from(env(0))); err == nil || !strings.Contains(err.Error(), "connected already") {
		t.Error(err)
	}
}

// Without RequireProof stock programs are served, and ours are trusted after the proof.
func TestProofNotRequired(t *testing.T) {
	key := random(keySize)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := NewServer(2, Options{Key: key})
	ended := make(chan struct{})
	go func() { defer close(ended); s.ServeListener(ln) }()
	defer within(t, ended, "the server to end")
	defer s.Close()
	defer ln.Close()
	for rank, k := range []string{s.Key(), ""} {
		c, err := join(context.Background(), from(map[string]string{EnvPort: ln.Addr().String(), EnvID: strconv.Itoa(rank), EnvJob: s.Name(), EnvKey: k}))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if (c.Secret() != nil) != (k != "") {
			t.Errorf("rank %d has %d bytes of secret", rank, len(c.Secret()))
		}
		if err := c.Put(fmt.Sprint("k", rank), nil); err != nil {
			t.Error(err)
		}
	}
}

// 10,000 connections that stay open and say nothing, or say a word at a time, while ranks join.
func TestCrowd(t *testing.T) {
	const ranks, crowd = 4, 10000
	s, env := proving(t, ranks, time.Minute, "127.0.0.1:0")
	var mu sync.Mutex
	var open []net.Conn
	defer func() {
		for _, c := range open {
			c.Close()
		}
	}()
	stop := make(chan struct{})
	var pushing sync.WaitGroup
	most := minStrangers + 2*ranks
	push := func() {
		conn, err := net.Dial("tcp", env(0)[EnvPort])
		if err != nil {
			return
		}
		io.WriteString(conn, "cmd=init")
		mu.Lock()
		defer mu.Unlock()
		if open = append(open, conn); len(open) > 2*most { // our own descriptors are few too
			open[0].Close()
			open = open[1:]
		}
	}
	for range most {
		push() // full from the start
	}
	for range 4 {
		pushing.Go(func() {
			for range crowd / 4 {
				select {
				case <-stop:
					return
				default:
					push()
				}
			}
		})
	}
	var joining sync.WaitGroup
	for rank := range ranks {
		joining.Go(func() {
			c, err := join(context.Background(), from(env(rank)))
			if err != nil {
				t.Error(err)
				return
			}
			c.Close()
		})
	}
	joining.Wait()
	pushing.Wait()
	close(stop)
	s.mu.Lock()
	waiting, from := len(s.lobby.waiting), len(s.lobby.from)
	s.mu.Unlock()
	if waiting > most || from > 1 {
		t.Errorf("%d strangers from %d addresses are waiting, at most %d may", waiting, from, most)
	}
	if n := s.Strangers(); n.Evicted == 0 {
		t.Errorf("strangers: %+v", n)
	}
	for end := time.Now().Add(30 * time.Second); runtime.NumGoroutine() > 4*most; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d goroutines", runtime.NumGoroutine())
		}
	}
}

// Whoever floods the port pushes out his own.
func TestVictim(t *testing.T) {
	b := lobby{from: map[netip.Addr]int{}}
	at := func(i byte) *stranger { return &stranger{from: netip.AddrFrom4([4]byte{10, 0, 0, i})} }
	rank, flood1, flood2, other := at(1), at(2), at(2), at(3)
	for _, st := range []*stranger{rank, flood1, other, flood2} {
		b.add(st)
	}
	if b.victim() != flood1 {
		t.Error("the victim is not the oldest of the crowd")
	}
	b.remove(flood1)
	b.remove(flood1) // a second time does nothing
	if b.victim() != rank || len(b.from) != 3 || b.from[flood2.from] != 1 {
		t.Errorf("then the oldest of all: %v", b.from)
	}
}

// Slow loris, and one that never says anything: both are let go in time, and counted.
func TestLateStrangers(t *testing.T) {
	s, env := proving(t, 1, 200*time.Millisecond, "127.0.0.1:0")
	silent, loris := dialRaw(t, env(0)[EnvPort]), dialRaw(t, env(0)[EnvPort])
	go func() {
		for _, b := range []byte("cmd=initack pmiid=0\n" + strings.Repeat("cmd=init pmi_version=1 x=y ", 1000)) {
			if _, err := loris.conn.Write([]byte{b}); err != nil {
				return
			}
			time.Sleep(5 * time.Millisecond)
		}
	}()
	silent.ended()
	if said, err := io.ReadAll(loris.conn); errors.Is(err, os.ErrDeadlineExceeded) { // the answer to initack, if it was in time
		t.Errorf("who speaks slowly is still listened to, and was told %q", said)
	}
	for range 2 {
		if e := wantEvent(t, s, EventGarbage, -1); !strings.Contains(e.Err.Error(), "within 200ms") {
			t.Error(e.Err)
		}
	}
	if n := s.Strangers(); n.Late != 2 {
		t.Errorf("%+v", n)
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
	_, env := proving(t, 1, time.Minute, "127.0.0.1:0")
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
		if d, err := peerTimeout(from(map[string]string{EnvPeerTimeout: text})); err != nil || d != want {
			t.Errorf("%q: %v %v", text, d, err)
		}
	}
	for _, text := range []string{"0", "999ms", "soon", "-3s"} {
		if _, err := peerTimeout(from(map[string]string{EnvPeerTimeout: text})); err == nil || !strings.Contains(err.Error(), EnvPeerTimeout) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func TestMapping(t *testing.T) {
	for want, perHost := range map[string][]int{
		"(vector,(0,2,1))":                 {1, 1},
		"(vector,(0,1,3),(1,1,1))":         {3, 1},
		"(vector,(0,1,4),(1,1,2),(2,2,1))": {4, 2, 1, 1},
		"(vector,(0,2,2))":                 {2, 0, 2, 0},
		"(vector,(0,1,1))":                 {0, 1},
		"":                                 {0, 0},
	} {
		if got := Mapping(perHost); got != want {
			t.Errorf("%v: %s, want %s", perHost, got, want)
		}
	}
	long := make([]int, 1000)
	for i := range long {
		long[i] = 1 + i%2
	}
	if got := Mapping(long); got != "" {
		t.Errorf("a mapping of %d characters", len(got))
	}
}

// FuzzStranger: whatever somebody without the key sends, no rank has joined.
func FuzzStranger(f *testing.F) {
	f.Add([]byte("cmd=initack pmiid=0\ncmd=init pmi_version=1\ncmd=gorun_hello version=1 nonce=AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA\ncmd=gorun_proof proof=AAAA\n"))
	f.Add([]byte("cmd=initack pmiid=0\ncmd=get_maxes\ncmd=put kvsname=job key=a value=b\n"))
	f.Add([]byte("cmd=initack pmiid=0\nmcmd=spawn\nendcmd\ncmd=abort exitcode=1\n"))
	f.Fuzz(func(t *testing.T, in []byte) {
		s := NewServer(1, Options{Name: "job", RequireProof: true})
		near, far := net.Pipe()
		done := make(chan struct{})
		go func() { defer close(done); s.serveStranger(near) }()
		read := make(chan []byte)
		go func() { b, _ := io.ReadAll(far); read <- b }()
		far.SetWriteDeadline(time.Now().Add(5 * time.Second))
		far.Write(in)
		far.Close()
		within(t, done, "the server to end")
		for l := range bytes.Lines(<-read) {
			if _, err := parseLine(bytes.TrimSuffix(l, []byte("\n"))); err != nil || len(l) > maxWrite {
				t.Errorf("the server sent %q: %v", l, err)
			}
		}
		if s.State(0) != (State{}) || s.conns[0] != nil || len(s.kvs) != 0 || len(s.lobby.waiting) != 0 {
			t.Errorf("%+v, %d keys, %d waiting", s.State(0), len(s.kvs), len(s.lobby.waiting))
		}
	})
}
