package reach

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gorun-mpi/mpi/internal/auth"
	"github.com/gorun-mpi/mpi/internal/auth/authtest"
	"github.com/gorun-mpi/mpi/internal/testkit/proc"
)

// listener is a port of this host.
func listener(t *testing.T) net.Listener {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return ln
}

// opened returns an Acceptor for hosts, and a call to it.
func opened(t *testing.T, limit time.Duration, hosts ...string) (*Acceptor, Call) {
	t.Helper()
	ln := listener(t)
	c := NewCall("job", me(t).Build, []string{ln.Addr().String()})
	d := Listen(ln, AcceptorOptions{Call: c, Hosts: hosts, Limit: limit, Log: func(string, ...any) {}})
	t.Cleanup(d.Close)
	return d, c
}

// dialled starts an agent, as a launcher would that gives no stream.
type dialled struct{ t *testing.T }

func (x dialled) Open(ctx context.Context, host string) (*Edge, error) {
	d, c := opened(x.t, 0, host)
	cmd := exec.CommandContext(x.t.Context(), me(x.t).Path, Word, me(x.t).Build, Dialling)
	cmd.Env = append(os.Environ(), envNode+"="+host)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	go cmd.Wait()
	in.Write(c.encode())
	return d.Open(ctx, host)
}

// All that package auth promises is kept at the port that agents dial.
func TestIntruders(t *testing.T) {
	defer func(was time.Duration) { proving = was }(proving)
	proving = 300 * time.Millisecond
	const hosts = 100
	var names []string
	for i := range hosts {
		names = append(names, fmt.Sprint("h", i))
	}
	d, c := opened(t, 0, names...)
	member := func() *auth.Handshaker { return handshaker(c.Job, c.Key, 0) }
	var next atomic.Int64
	authtest.Run(t, authtest.Listener{
		Dial:    func() (net.Conn, error) { return net.Dial("tcp", c.Addrs[0]) },
		Member:  member,
		To:      auth.Launcher,
		Refused: d.acceptor.Refused,
		Works: func() error {
			c := c
			c.Host = names[next.Add(1)-1]
			conn, err := c.Dial(t.Context())
			if err != nil {
				return err
			}
			defer conn.Close()
			e, err := d.Open(t.Context(), c.Host)
			if err == nil {
				defer e.Close()
				go io.WriteString(conn, "x")
				_, err = io.ReadFull(e, make([]byte, 1))
			}
			return err
		},
	})
}

// Each host has one agent, and others of the job have no place.
func TestWhoComes(t *testing.T) {
	d, c := opened(t, 0, "a", "b")
	dial := func(host string) (net.Conn, error) {
		c := c
		c.Host = host
		return c.Dial(t.Context())
	}
	a, err := dial("a")
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	for host, want := range map[string]string{
		"a":                       "has an agent already",
		"":                        "the job has no host",
		"c\n":                     `the job has no host`,
		strings.Repeat("x", 300):  "may have 268",
		strings.Repeat("\x00", 9): "the job has no host",
	} {
		_, err := dial(host)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q: %v", host, err)
		}
	}
	for _, host := range []string{"c", ""} {
		if _, err := d.Open(t.Context(), host); err == nil {
			t.Error("an agent of a host that is none of the job")
		}
	}
	b, err := dial("b")
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	proc.Eventually(t, "the port to be closed when all have come", func() bool {
		conn, err := net.Dial("tcp", c.Addrs[0])
		if err == nil {
			conn.Close()
		}
		return err != nil
	})
	for _, host := range []string{"b", "a"} {
		e, err := d.Open(t.Context(), host)
		if err != nil {
			t.Fatal(err)
		}
		e.Close()
		if _, err := d.Open(t.Context(), host); err == nil || !strings.Contains(err.Error(), "has come before") {
			t.Errorf("again: %v", err)
		}
	}
}

// An agent of another build is refused, and does not take the place of its host's. If no other comes, that is the
// error.
func TestOtherBuild(t *testing.T) {
	defer func(was time.Duration) { strange = was }(strange)
	strange = time.Hour
	d, c := opened(t, 0, "a", "b")
	other := c
	other.Build = "another"
	for _, host := range []string{"a", "a", "b"} {
		other.Host = host
		if _, err := other.Dial(t.Context()); err == nil || !strings.Contains(err.Error(), "another build") {
			t.Errorf("%s: %v", host, err)
		}
	}
	c.Host = "b"
	conn, err := c.Dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for _, host := range []string{"b", "a"} {
		d.giveUp(d.hosts[host]) // the time of each is over
	}
	if _, err := d.Open(t.Context(), "b"); err != nil {
		t.Error(err)
	}
	var why *Error
	if _, err := d.Open(t.Context(), "a"); !errors.As(err, &why) || !why.Final ||
		!strings.Contains(err.Error(), "its gorun is of another build") {
		t.Error(err)
	}
}

// The time after which an agent of another build counts for its host is over by itself.
func TestOnlyOtherBuild(t *testing.T) {
	defer func(was time.Duration) { strange = was }(strange)
	strange = 20 * time.Millisecond
	d, c := opened(t, 0, "a")
	c.Host, c.Build = "a", "another"
	c.Dial(t.Context())
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if _, err := d.Open(ctx, "a"); err == nil || !strings.Contains(err.Error(), "of another build") {
		t.Error(err)
	}
}

// So it is where it was over just while the right agent was here, which then failed.
func TestOtherBuildAndOneThatFails(t *testing.T) {
	defer func(was time.Duration) { strange = was }(strange)
	strange = time.Hour
	d, c := opened(t, 0, "a")
	other := c
	other.Host, other.Build = "a", "another"
	other.Dial(t.Context())
	conn, err := net.Dial("tcp", c.Addrs[0])
	if err != nil {
		t.Fatal(err)
	}
	s, err := handshaker(c.Job, c.Key, 0).Dial(t.Context(), conn, auth.Launcher)
	if err == nil {
		err = s.Confirm([]byte(c.Build + " a"))
	}
	if err != nil {
		t.Fatal(err)
	}
	d.giveUp(d.hosts["a"]) // the hour is over
	d.mu.Lock()
	strange = 20 * time.Millisecond
	d.mu.Unlock()
	s.Close() // before TLS
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if _, err := d.Open(ctx, "a"); err == nil || !strings.Contains(err.Error(), "of another build") {
		t.Error(err)
	}
}

// What answers at gorun's address and is not gorun of this job is given up after a while. An address that does not
// answer is not. What is in the way is said once.
func TestStrangers(t *testing.T) {
	defer func(l, s time.Duration) { late, strange = l, s }(late, strange)
	late, strange = 0, 300*time.Millisecond
	_, c := opened(t, 0, "a")
	said := 0
	stranger := NewCall("job", c.Build, c.Addrs)
	stranger.Late = func(error) { said++ }
	if _, err := stranger.Dial(t.Context()); err == nil || !errors.Is(err, auth.ErrTurnedAway) ||
		!strings.Contains(err.Error(), "the keys differ, or a proxy") {
		t.Error(err)
	}
	proxy := listener(t)
	defer proxy.Close()
	go func() {
		for conn, err := proxy.Accept(); err == nil; conn, err = proxy.Accept() {
			conn.Close()
		}
	}()
	closed := NewCall("job", c.Build, []string{proxy.Addr().String()})
	if _, err := closed.Dial(t.Context()); err == nil || !strings.Contains(err.Error(), "the keys differ, or a proxy") {
		t.Error(err)
	}
	none := listener(t)
	none.Close()
	nowhere := NewCall("job", c.Build, []string{none.Addr().String(), c.Addrs[0]})
	nowhere.Late = func(error) { said++ }
	ctx, cancel := context.WithTimeout(t.Context(), 4*strange)
	defer cancel()
	if _, err := nowhere.Dial(ctx); err == nil || ctx.Err() == nil {
		t.Errorf("%v before the time was over", err)
	}
	if said != 2 {
		t.Errorf("said %d times", said)
	}
}

// An agent that gives up, or is cut off, after it has proved itself may come again.
func TestComesAgain(t *testing.T) {
	d, c := opened(t, 0, "a")
	for _, confirm := range []bool{false, true} {
		conn, err := net.Dial("tcp", c.Addrs[0])
		if err != nil {
			t.Fatal(err)
		}
		s, err := handshaker(c.Job, c.Key, 0).Dial(t.Context(), conn, auth.Launcher)
		if err == nil && confirm {
			err = s.Confirm([]byte(c.Build + " a"))
		}
		if err != nil {
			t.Fatal(err)
		}
		s.Close() // before TLS
	}
	c.Host = "a"
	var conn net.Conn
	for end := time.Now().Add(time.Minute); conn == nil; {
		var err error
		if conn, err = c.Dial(t.Context()); err != nil && time.Now().After(end) {
			t.Fatal(err)
		}
	}
	defer conn.Close()
	if _, err := d.Open(t.Context(), "a"); err != nil {
		t.Error(err)
	}
}

// An Acceptor stops listening when its time is over, on Fail, and when all agents have come, and says why.
func TestAcceptorStops(t *testing.T) {
	closed := func(c Call) {
		t.Helper()
		if _, err := net.Dial("tcp", c.Addrs[0]); err == nil {
			t.Error("the port is open")
		}
	}
	d, c := opened(t, 20*time.Millisecond, "a")
	if _, err := d.Open(t.Context(), "a"); err == nil || !strings.Contains(err.Error(), "has not come in 20ms") {
		t.Error(err)
	}
	closed(c)
	d, c = opened(t, 0, "a")
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if _, err := d.Open(ctx, "a"); err == nil || errors.As(err, new(*Error)) {
		t.Errorf("not to be tried again: %v", err)
	}
	d.Fail(errors.New("srun has ended"))
	if _, err := d.Open(t.Context(), "a"); err == nil || !strings.Contains(err.Error(), "srun has ended") {
		t.Error(err)
	}
	closed(c)
	_, c = opened(t, 0) // no agent is expected
	closed(c)
	d, c = opened(t, time.Hour, "a", "b")
	c.Host = "a"
	conn, err := c.Dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	var all sync.WaitGroup
	for range 4 {
		all.Go(d.Close)
	}
	all.Wait()
	closed(c)
	if n, err := conn.Read(make([]byte, 1)); err == nil {
		t.Errorf("an agent that was not taken reads %d bytes", n)
	}
}

// An agent finds gorun at whatever of its addresses is the way, and comes once.
func TestManyAddresses(t *testing.T) {
	d, c := opened(t, 0, "a")
	silent, other := listener(t), listener(t) // one says nothing, one something else
	defer silent.Close()
	defer other.Close()
	go func() {
		for {
			conn, err := other.Accept()
			if err != nil {
				return
			}
			conn.Write([]byte("220 hello\r\n"))
			conn.Close()
		}
	}()
	none := listener(t)
	none.Close()
	good := c.Addrs[0]
	c.Host, c.Addrs = "a", nil
	for _, ln := range []net.Listener{silent, other, none} {
		c.Addrs = append(c.Addrs, ln.Addr().String())
	}
	c.Addrs = append(c.Addrs, "no.such.invalid:1", good, good)
	conn, err := c.Dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := d.Open(t.Context(), "a"); err != nil {
		t.Error(err)
	}
	c.Addrs = c.Addrs[1:3]
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, err := c.Dial(ctx); err == nil || !strings.Contains(err.Error(), none.Addr().String()) {
		t.Error(err)
	}
}

// An agent without gorun ends: one that gets no call, a wrong one, or one to a port at which there is no gorun, when
// its standard input ends.
func TestAgentWithoutGorun(t *testing.T) {
	none := listener(t)
	none.Close()
	nowhere := NewCall("job", "", []string{none.Addr().String()})
	_, c := opened(t, 0, "another host")
	stranger := NewCall("job", "", c.Addrs)
	for name, text := range map[string]string{
		"nothing": "", "no call": "cmd=init\n", "half a call": `{"Job":`, "much": strings.Repeat("x", 2*maxCall),
		"nowhere": string(nowhere.encode()), "another key": string(stranger.encode()),
		"another host": string(c.encode()),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cmd := exec.Command(me(t).Path, Word, me(t).Build, Dialling)
			cmd.Stdin = strings.NewReader(text)
			cmd.Env = append(os.Environ(), envNode+"=host")
			out, err := cmd.CombinedOutput()
			if cmd.ProcessState.ExitCode() != 1 || len(out) == 0 || strings.Contains(string(out), "Key") {
				t.Errorf("%v: %s", err, out)
			}
		})
	}
}

// What was encoded is decoded, and what is decoded makes sense.
func FuzzCall(f *testing.F) {
	c := NewCall("job", "build", []string{"127.0.0.1:1", "[::1]:2"})
	f.Add(c.encode())
	f.Add([]byte(`{"Job":"x","Key":"","Addrs":["a:1"]}`))
	f.Add([]byte(`{"Job":"x","Key":"AAAA","Addrs":[":1"]}x`))
	f.Add([]byte(`{"Host":"x"}`))
	f.Fuzz(func(t *testing.T, line []byte) {
		c, err := decodeCall(line)
		if err != nil {
			if strings.Contains(err.Error(), "\n") {
				t.Errorf("%q", err)
			}
			return
		}
		again, err := decodeCall(c.encode())
		if err != nil || !reflect.DeepEqual(c, again) || len(c.Key) != KeySize || c.Host != "" {
			t.Errorf("%+v, %+v, %v", c, again, err)
		}
	})
}
