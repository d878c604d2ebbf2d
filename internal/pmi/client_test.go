package pmi

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
)

// The orders of fields are those of cluster/FACTS.md §2; the values are what this client sends.
const hydraScript = `
	> cmd=init pmi_version=1 pmi_subversion=1\n
	< cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0\n
	> cmd=get_maxes\n
	< cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=1024\n
	> cmd=get_my_kvsname\n
	< cmd=my_kvsname kvsname=kvs_29798_0_402870026_vm\n
	> cmd=put kvsname=kvs_29798_0_402870026_vm key=addr-0 value=vAAf4gA\n
	< cmd=put_result rc=0 msg=success\n
	> cmd=barrier_in\n
	< cmd=barrier_out\n
	> cmd=get kvsname=kvs_29798_0_402870026_vm key=addr-0\n
	< cmd=get_result rc=0 msg=success value=vAAf4gA\n
	> cmd=get kvsname=kvs_29798_0_402870026_vm key=nosuch\n
	< cmd=get_result rc=-1 msg=key_nosuch_not_found value=unknown\n
	> cmd=finalize\n
	< cmd=finalize_ack\n`

const slurmScript = `
	> cmd=init pmi_version=1 pmi_subversion=1\n
	< cmd=response_to_init rc=0 pmi_version=1 pmi_subversion=1\n
	> cmd=get_maxes\n
	< cmd=maxes rc=0 kvsname_max=256 keylen_max=64 vallen_max=1024\n
	> cmd=get_my_kvsname\n
	< cmd=my_kvsname rc=0 kvsname=2.0\n
	> cmd=put kvsname=2.0 key=addr-0 value=vAAf4gA\n
	< cmd=put_result rc=0\n
	> cmd=barrier_in\n
	< cmd=barrier_out rc=0\n
	> cmd=get kvsname=2.0 key=addr-0\n
	< cmd=get_result rc=0 value=vAAf4gA\n
	> cmd=get kvsname=2.0 key=nosuch\n
	< cmd=get_result rc=1\n
	> cmd=finalize\n
	< cmd=finalize_ack rc=0\n`

var newerScript = strings.NewReplacer("rc=1\\n\n\t> cmd=fin", "found=FALSE\\n\n\t> cmd=fin", "rc=0 value",
	"found=TRUE value").Replace(slurmScript)

func TestTranscripts(t *testing.T) {
	for _, c := range []struct {
		name, script, launcher string
		env                    map[string]string
	}{
		{"hydra", hydraScript, "hydra", map[string]string{"HYDI_CONTROL_FD": "7"}},
		{"slurm", slurmScript, "slurm", map[string]string{"SLURM_JOB_ID": "2", "SLURM_NTASKS": "2"}},
		{"found=FALSE", newerScript, "pmi", nil},
		// GORUN_JOB leaked from an outer gorun job: nothing of ours may be said to this launcher.
		{"leaked GORUN_JOB", hydraScript, "hydra", map[string]string{EnvJob: "gorun_outer"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			a, b := sockets(t)
			env := rankEnv(t, b, 0, 2, "")
			for k, v := range c.env {
				env[k] = v
			}
			done := make(chan struct{})
			go func() { defer close(done); newFake(t, a).script(c.script) }()
			exercise(t, from(env), c.launcher)
			within(t, done, "the end of the transcript")
		})
	}
}

func exercise(t *testing.T, env lookup, launcher string) {
	t.Helper()
	c, err := join(context.Background(), env)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if c.Rank() != 0 || c.Size() != 2 || c.launcher != launcher || c.Secret() != nil {
		t.Errorf("rank %d of %d under %q, secret %v", c.Rank(), c.Size(), c.launcher, c.Secret() != nil)
	}
	value := []byte{0, 7, 0xf8, 0x80}
	if err := c.Put(t.Context(), "addr-0", value); err != nil {
		t.Error(err)
	}
	if err := c.Fence(context.Background()); err != nil {
		t.Error(err)
	}
	if got, err := c.Get(t.Context(), "addr-0"); err != nil || !bytes.Equal(got, value) {
		t.Error(got, err)
	}
	if _, err := c.Get(t.Context(), "nosuch"); !errors.Is(err, ErrNoKey) {
		t.Error(err)
	}
	if err := c.Finalize(t.Context()); err != nil {
		t.Error(err)
	}
	select {
	case <-c.Lost():
		t.Error("Lost fired although the rank had finalized")
	default:
	}
	if err := c.Put(t.Context(), "x", nil); !errors.Is(err, ErrFinalized) {
		t.Errorf("Put after Finalize: %v", err)
	}
	if err := c.Fence(context.Background()); !errors.Is(err, ErrFinalized) {
		t.Errorf("Fence after Finalize: %v", err)
	}
	if err := c.Finalize(t.Context()); !errors.Is(err, ErrFinalized) {
		t.Errorf("second Finalize: %v", err)
	}
}

// hydra's four lines in one segment, as it sends them.
func TestPortHandshake(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	done := make(chan struct{})
	go func() {
		defer close(done)
		conn, err := ln.Accept()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		newFake(t, conn).script("> cmd=initack pmiid=17\\n\n< cmd=initack\\ncmd=set size=2\\ncmd=set rank=0\\ncmd=set debug=0\\n\n" + hydraScript)
	}()
	_, port, _ := net.SplitHostPort(ln.Addr().String())
	exercise(t, from(map[string]string{EnvPort: "localhost:" + port, EnvID: "17"}), "hydra")
	within(t, done, "the end of the transcript")
}

func TestBadReplies(t *testing.T) {
	const init = "> cmd=init pmi_version=1 pmi_subversion=1\\n\n"
	const good = init + "< cmd=response_to_init rc=0\\n\n> cmd=get_maxes\\n\n"
	for name, c := range map[string]struct{ script, want string }{
		"refused":         {init + "< cmd=response_to_init rc=-1 msg=go\\ away\\n", "init"},
		"PMI-2 only":      {init + "< cmd=response_to_init rc=0 pmi_version=2\\n", "version"},
		"wrong reply":     {init + "< cmd=maxes rc=0\\n", "init"},
		"garbage":         {init + "< HTTP/1.1 400 Bad Request\\n", "not a PMI-1 line"},
		"endless line":    {init + "< " + strings.Repeat("x", maxRead+10), "longer than"},
		"end":             {init, "ended"},
		"no limits":       {good + "< cmd=maxes rc=0\\n", "keylen_max"},
		"absurd limits":   {good + "< cmd=maxes keylen_max=-1 vallen_max=99999999999999999999\\n", "vallen_max"},
		"tiny limits":     {good + "< cmd=maxes keylen_max=2 vallen_max=2\\n", "too short"},
		"no name":         {good + "< cmd=maxes keylen_max=64 vallen_max=1024\\n\n> cmd=get_my_kvsname\\n\n< cmd=my_kvsname\\n", "no name"},
		"two replies":     {init + "< cmd=response_to_init rc=0\\ncmd=x\\ncmd=x\\ncmd=x\\n", ""},
		"speaks unasked":  {"< cmd=hello\\n", ""},
		"half, then ends": {init + "< cmd=respon", "ended"},
	} {
		t.Run(name, func(t *testing.T) {
			a, b := sockets(t)
			env := rankEnv(t, b, 0, 2, "")
			go func() {
				newFake(t, a).script(c.script)
				a.Close()
			}()
			client, err := join(context.Background(), from(env))
			if err == nil {
				client.Close()
				t.Fatal("joined")
			}
			if !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "wire-up step") {
				t.Errorf("the error should name the step and %q: %v", c.want, err)
			}
		})
	}
}

// Whether the time is over before the request is sent or while it is under way, the error says what was over.
func TestJoinDeadline(t *testing.T) {
	for _, limit := range []time.Duration{0, 30 * time.Millisecond} {
		_, b := sockets(t)
		env := rankEnv(t, b, 0, 2, "")
		over := errors.New("not within the time")
		ctx, cancel := context.WithTimeoutCause(context.Background(), limit, over)
		defer cancel()
		c, err := join(ctx, from(env))
		if c != nil || !errors.Is(err, over) || !strings.Contains(err.Error(), "init") {
			t.Errorf("a launcher that says nothing for %v: %v", limit, err)
		}
	}
}

// A launcher that does not read, until the time is over.
func TestWriteDeadline(t *testing.T) {
	near, far := net.Pipe() // which holds no byte
	defer far.Close()
	c := newClient(near, 0, 1)
	c.start()
	defer c.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Millisecond)
	defer cancel()
	if err := c.Put(ctx, "k", nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
}

// A request whose context has ended is not sent, and breaks nothing.
func TestContextEndedBefore(t *testing.T) {
	_, clients := world(t, 1, false, Options{})
	ctx, cancel := context.WithTimeout(context.Background(), 0)
	defer cancel()
	for range 20 { // of which some find the wire free
		if err := clients[0].Put(ctx, "k", nil); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
	}
	if err := clients[0].Put(t.Context(), "k", nil); err != nil {
		t.Error(err)
	}
}

// Without a launcher of PMI there is no client; a broken environment is an error.
func TestEnvironments(t *testing.T) {
	for _, env := range []map[string]string{{}, {"HOME": "/"}, {"PMI_SIZE": "4", "PMI_RANK": "0"}} {
		if c, err := join(context.Background(), from(env)); c != nil || err != nil {
			t.Errorf("%v: %v %v", env, c, err)
		}
	}
	for _, c := range []struct {
		env  map[string]string
		want string // variable, and a word of advice
		do   string
	}{
		{map[string]string{"PMI_FD": "3"}, "PMI_SIZE and PMI_RANK are not", "incomplete"},
		{map[string]string{"PMI_FD": "3", "PMI_SIZE": "2"}, "PMI_FD is set but PMI_RANK is not", "incomplete"},
		{map[string]string{"PMI_FD": "x", "PMI_SIZE": "2", "PMI_RANK": "0"}, "PMI_FD", "number"},
		{map[string]string{"PMI_FD": "3", "PMI_SIZE": "2", "PMI_RANK": "2"}, "PMI_RANK", "number from 0 to 1"},
		{map[string]string{"PMI_FD": "1048570", "PMI_SIZE": "2", "PMI_RANK": "1"}, "PMI_FD=1048570", "no socket"},
		{map[string]string{"PMI_PORT": "nowhere", "PMI_ID": "1"}, "PMI_PORT", "host:port"},
		{map[string]string{"PMI_PORT": "127.0.0.1:1", "PMI_ID": "1"}, "PMI_PORT=127.0.0.1:1", "connect"},
		{map[string]string{"PMI_PORT": "127.0.0.1:1"}, "PMI_ID", "incomplete"},
	} {
		client, err := join(context.Background(), from(c.env))
		if client != nil || err == nil {
			t.Errorf("%v: no error", c.env)
		} else if !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), c.do) {
			t.Errorf("%v: the error names not both %q and %q: %v", c.env, c.want, c.do, err)
		}
	}
}

// A descriptor that is no socket was left by another launcher.
func TestOffered(t *testing.T) {
	a, b := sockets(t)
	live := rankEnv(t, b, 0, 2, "")
	defer a.Close()
	for _, c := range []struct {
		env      map[string]string
		variable string
		live     bool
	}{
		{nil, "", false},
		{live, "PMI_FD", true},
		{map[string]string{"PMI_FD": "1048570"}, "PMI_FD", false},
		{map[string]string{"PMI_FD": "x"}, "PMI_FD", true}, // Join says what is wrong
		{map[string]string{"PMI_PORT": "h:1"}, "PMI_PORT", true},
	} {
		if variable, live := Offered(from(c.env)); variable != c.variable || live != c.live {
			t.Errorf("%v: %q %v, want %q %v", c.env, variable, live, c.variable, c.live)
		}
	}
}

// An inherited PMI_FD that is not a socket must be left as it is.
func TestForeignDescriptor(t *testing.T) {
	a, _ := sockets(t)
	f, err := a.(*net.UnixConn).File()
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := takeSocket(1 << 19); err == nil {
		t.Error("a descriptor that is not open was taken")
	}
}

func TestRoundTrip(t *testing.T) {
	for _, tcp := range []bool{false, true} {
		t.Run(fmt.Sprintf("tcp=%v", tcp), func(t *testing.T) {
			const n = 5
			s, clients := world(t, n, tcp, Options{})
			big := bytes.Repeat([]byte("0123456789abcdef"), MaxPut/16)
			each(clients, func(c *Client) {
				if c.launcher != "gorun" || c.Size() != n || c.Name() != s.Name() {
					t.Errorf("%q %d %q", c.launcher, c.Size(), c.Name())
				}
				mine := append([]byte{byte(c.Rank())}, big[:MaxPut-1]...)
				if err := c.Put(t.Context(), fmt.Sprintf("big-%d", c.Rank()), mine); err != nil {
					t.Error(err)
				}
				if err := c.Fence(context.Background()); err != nil {
					t.Error(err)
				}
				for r := range n {
					got, err := c.Get(t.Context(), fmt.Sprintf("big-%d", r))
					if err != nil || len(got) != MaxPut || got[0] != byte(r) || !bytes.Equal(got[1:], big[:MaxPut-1]) {
						t.Errorf("rank %d: value of %d: %d bytes, %v", c.Rank(), r, len(got), err)
					}
				}
				if err := c.Finalize(t.Context()); err != nil {
					t.Error(err)
				}
			})
			for r := range n {
				if st := s.State(r); !st.Joined || !st.Finalized || st.Aborted {
					t.Errorf("rank %d: %+v", r, st)
				}
			}
		})
	}
}

func TestSecret(t *testing.T) {
	_, local := world(t, 2, false, Options{})
	if len(local[0].Secret()) != 32 || !bytes.Equal(local[0].Secret(), local[1].Secret()) {
		t.Error("two ranks of a job have no secret in common")
	}
	_, other := world(t, 1, false, Options{})
	if bytes.Equal(local[0].Secret(), other[0].Secret()) {
		t.Error("two jobs have the same secret")
	}
}

// A value of 500 bytes travels under one key, even if that is long.
func TestShortValuesNeedOneKey(t *testing.T) {
	_, c := world(t, 1, false, Options{})
	parts, err := splitValue(make([]byte, 500), c[0].textLimit(50+partSuffix))
	if err != nil || len(parts) != 1 {
		t.Errorf("it needs %d keys, %v", len(parts), err)
	}
}

func TestBadKeys(t *testing.T) {
	_, c := world(t, 1, false, Options{})
	for _, key := range []string{"", "a b", "a=b", "a\nb", `a\b`, "PMI_x", strings.Repeat("k", 60), "ü"} {
		if err := c[0].Put(t.Context(), key, nil); err == nil {
			t.Errorf("key %q was put", key)
		}
		if _, err := c[0].Get(t.Context(), key); err == nil || errors.Is(err, ErrNoKey) {
			t.Errorf("key %q was looked for: %v", key, err)
		}
	}
	if err := c[0].Put(t.Context(), "k", make([]byte, MaxPut+1)); err == nil {
		t.Error("a value over the limit was put")
	}
	if err := c[0].Put(t.Context(), "k", []byte("1")); err != nil {
		t.Error(err)
	}
	if err := c[0].Put(t.Context(), "k", []byte("2")); err == nil || !strings.Contains(err.Error(), "duplicate") {
		t.Errorf("a second put of a key: %v", err)
	}
}

func TestConcurrentUse(t *testing.T) {
	_, clients := world(t, 3, false, Options{})
	each(clients, func(c *Client) {
		var all sync.WaitGroup
		for i := range 20 {
			all.Go(func() {
				key := fmt.Sprintf("r%d-%d", c.Rank(), i)
				if err := c.Put(t.Context(), key, []byte(key)); err != nil {
					t.Error(err)
				}
				if v, err := c.Get(t.Context(), key); err != nil || string(v) != key {
					t.Errorf("%q %v", v, err)
				}
			})
		}
		all.Wait()
		for range 10 {
			if err := c.Fence(context.Background()); err != nil {
				t.Error(err)
			}
		}
	})
}

// The end of the launcher is noticed without any call.
func TestLost(t *testing.T) {
	s, clients := world(t, 2, false, Options{})
	s.Close()
	for _, c := range clients {
		within(t, c.Lost(), "Lost")
		if _, err := c.Get(t.Context(), "x"); !errors.Is(err, ErrLost) {
			t.Errorf("Get after the launcher's end: %v", err)
		}
		if err := c.Finalize(t.Context()); !errors.Is(err, ErrLost) {
			t.Errorf("Finalize after the launcher's end: %v", err)
		}
	}
}

// oneEntered waits until one rank is in the barrier.
func oneEntered(s *Server) {
	for {
		s.mu.Lock()
		entered := s.entered
		s.mu.Unlock()
		if entered == 1 {
			return
		}
		time.Sleep(time.Millisecond)
	}
}

func TestLostWhileWaiting(t *testing.T) {
	s, clients := world(t, 2, false, Options{})
	failed := make(chan error, 1)
	go func() { failed <- clients[0].Fence(context.Background()) }()
	oneEntered(s)
	s.Close()
	select {
	case err := <-failed:
		if !errors.Is(err, ErrLost) {
			t.Errorf("Fence: %v", err)
		}
	case <-time.After(hang):
		t.Error("Fence hangs after the launcher's end")
	}
}

func TestCloseIsNoLoss(t *testing.T) {
	s, clients := world(t, 1, false, Options{})
	clients[0].Close()
	clients[0].Close()
	wantEvent(t, s, EventClosed, 0)
	select {
	case <-clients[0].Lost():
		t.Error("Lost fired after Close")
	default:
	}
}

// A Fence that was given up leaves a reply outstanding: nothing later may take it for its own, and it is no loss.
func TestFenceGivenUp(t *testing.T) {
	s, clients := world(t, 2, false, Options{})
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() { oneEntered(s); cancel() }() // not before the launcher has heard of it
	if err := clients[0].Fence(ctx); !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "barrier_in") {
		t.Fatalf("Fence: %v", err)
	}
	if err := clients[1].Fence(context.Background()); err != nil { // rank 0 has entered: the reply to it comes now
		t.Fatal(err)
	}
	if _, err := clients[0].Get(t.Context(), "x"); err == nil || errors.Is(err, ErrNoKey) {
		t.Errorf("a later Get: %v", err)
	}
	select {
	case <-clients[0].Lost():
		t.Error("Lost fired")
	case <-time.After(30 * time.Millisecond):
	}
}

func TestAbort(t *testing.T) {
	s, clients := world(t, 2, false, Options{})
	fenced := make(chan error, 1)
	go func() { fenced <- clients[1].Fence(context.Background()) }() // an Abort must not wait for it
	if err := clients[1].Abort(7, "cannot go on:\n no disk"); err != nil {
		t.Fatal(err)
	}
	if e := wantEvent(t, s, EventAbort, 1); e.Code != 7 || e.Consequence ||
		e.Message != "cannot go on:\n no disk" {
		t.Errorf("%+v", e)
	}
	if err := errors.Join(clients[0].PeerFailed(), clients[0].Abort(9, strings.Repeat("ä", 3000))); err != nil {
		t.Fatal(err)
	}
	if e := wantEvent(t, s, EventAbort, 0); e.Code != 9 || !e.Consequence || len(e.Message) < 500 {
		t.Errorf("%d, consequence %v, message of %d bytes", e.Code, e.Consequence, len(e.Message))
	}
	s.Close()
	<-fenced
}

// FuzzClient lets the launcher answer anything.
func FuzzClient(f *testing.F) {
	f.Add([]byte("cmd=response_to_init rc=0\ncmd=maxes keylen_max=64 vallen_max=1024\ncmd=my_kvsname kvsname=k\ncmd=gorun_welcome version=1 secret=AAAA\n"))
	f.Add([]byte("cmd=response_to_init rc=0\n\n"))
	f.Add([]byte("cmd=initack\ncmd=set size=2\ncmd=set rank=0\ncmd=set debug=0\n"))
	f.Fuzz(func(t *testing.T, replies []byte) {
		near, far := net.Pipe()
		defer far.Close()
		go func() { // answer each request by one line of the input
			lr := lineReader{r: far}
			for l := range bytes.Lines(replies) {
				if _, err := lr.next(); err != nil {
					return
				}
				if _, err := far.Write(l); err != nil {
					return
				}
			}
			far.Close()
			io.Copy(io.Discard, far)
		}()
		c := newClient(near, 0, 2)
		c.start()
		ctx, cancel := context.WithTimeout(context.Background(), hang)
		defer cancel()
		if err := c.handshake(ctx, from(map[string]string{EnvJob: "k"})); err == nil {
			c.Put(ctx, "a", make([]byte, 3000))
			c.Get(ctx, "a")
			c.Fence(ctx)
			c.Finalize(ctx)
		}
		c.Close()
		if ctx.Err() != nil {
			t.Error("hangs")
		}
	})
}

// After the fence that a job begins with, a rank knows what the others have put, as far as one line has room for it: from
// the next rank on, and round. What is split over several keys it asks for, and what was not sent too.
func TestKnownAfterFence(t *testing.T) {
	for _, size := range []int{1, 2, 5, 40} {
		_, clients := world(t, size, false, Options{})
		value := func(rank int) []byte {
			if rank == 3 {
				return bytes.Repeat([]byte{3}, 2000)
			}
			return bytes.Repeat([]byte{byte(rank)}, 500)
		}
		key := func(rank int) string { return fmt.Sprintf("a-%d", rank) }
		var all sync.WaitGroup
		for rank, c := range clients {
			all.Go(func() {
				if err := errors.Join(c.Put(t.Context(), key(rank), value(rank)), c.FenceAhead(t.Context(), key(rank))); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		room := maxRead / 700
		for rank, c := range clients {
			for i := 1; i < size; i++ {
				other := (rank + i) % size
				got := c.Known(key(other))
				switch {
				case other == 3 || size == 40 && i > room+2:
					if got != nil {
						t.Errorf("%d ranks, rank %d knows %d bytes of rank %d, too long to be sent", size, rank, len(got), other)
					}
				case i <= room-2 && !bytes.Equal(got, value(other)):
					t.Errorf("%d ranks, rank %d knows %d bytes of rank %d", size, rank, len(got), other)
				}
			}
			if got := c.Known(key(rank)); size < room && got != nil {
				t.Errorf("%d ranks, rank %d was sent its own value", size, rank)
			}
			for other := range size {
				if got, err := c.Get(t.Context(), key(other)); err != nil || !bytes.Equal(got, value(other)) {
					t.Errorf("%d ranks, rank %d gets %d bytes of rank %d, %v", size, rank, len(got), other, err)
				}
			}
		}
	}
}

// The values of the keys that follow by number come with a reply: each is what was put, and is asked for less often
// than there are keys.
func TestValuesAhead(t *testing.T) {
	const keys = 100
	_, clients := world(t, 2, false, Options{})
	for i := range keys {
		if err := clients[0].Put(t.Context(), fmt.Sprintf("a-%d", i), bytes.Repeat([]byte{byte(i)}, i)); err != nil {
			t.Fatal(err)
		}
	}
	for _, k := range []string{"a", "a-", "-1", "a-99999999999999999999", "b-0"} {
		if err := clients[0].Put(t.Context(), k, []byte(k)); err != nil {
			t.Fatal(err)
		}
	}
	var all sync.WaitGroup
	for i := range keys {
		all.Go(func() {
			v, err := clients[1].Get(t.Context(), fmt.Sprintf("a-%d", i))
			if err != nil || !bytes.Equal(v, bytes.Repeat([]byte{byte(i)}, i)) {
				t.Errorf("key %d: %v, %v", i, v, err)
			}
		})
	}
	all.Wait()
	for _, k := range []string{"a", "a-", "-1", "a-99999999999999999999", "b-0"} {
		if v, err := clients[1].Get(t.Context(), k); err != nil || string(v) != k {
			t.Errorf("key %s: %q, %v", k, v, err)
		}
	}
	if _, err := clients[1].Get(t.Context(), "a-100"); !errors.Is(err, ErrNoKey) {
		t.Errorf("a key that was not put: %v", err)
	}
}
