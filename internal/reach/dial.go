package reach

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"time"

	"github.com/gorun-mpi/mpi/internal/auth"
)

// An agent whose standard streams cannot be the edge dials gorun. Both prove that they know the key of the call before
// either reads anything else (internal/auth), and then speak TLS. The agent's confirmation holds its build and the name
// of its host; the answer to it is empty, or says why there is no place for this agent:
//
//	agent                                   gorun
//	  | --- opening -------------------------> |   internal/auth
//	  | <-------------------------- reply --- |
//	  | --- confirmation: build, host -------> |
//	  | <-- answer: nothing, or the refusal -- |
//	  | <======= TLS 1.3, and frames ========> |
const protocol = "gorun agents 2"

// KeySize is the length of the key of a call.
const KeySize = 32

const (
	maxCall  = 8 << 10 // bytes of a call
	maxAddrs = 64
	maxHost  = 300 // with the build
)

// Call is what an agent has to know to dial. Its key must not be shown.
type Call struct {
	Job   string   // its name
	Key   []byte   // of the agents of this job, KeySize bytes
	Addrs []string // host:port of gorun, any of which may be the way to it
	Host  string   `json:",omitempty"` // what gorun calls the host of this agent; "": as Slurm does
	Build string   `json:"-"`          // of this program, which must be the same on both sides
	// Late is called once if gorun is not reached soon, with what is in the way.
	Late func(error) `json:"-"`
	// Patience is how long gorun may take to find a place for this agent; 0: as long as for any other step.
	Patience time.Duration `json:"-"`
}

// NewCall is a call with a key of its own.
func NewCall(job, build string, addrs []string) Call {
	c := Call{Job: job, Key: make([]byte, KeySize), Addrs: addrs, Build: build}
	rand.Read(c.Key)
	return c
}

// encode is the call in one line.
func (c *Call) encode() []byte {
	b, err := json.Marshal(c)
	if err != nil {
		panic(err) // strings and bytes
	}
	return append(b, '\n')
}

// decodeCall reads a line. An error does not say what is in it.
func decodeCall(line []byte) (c Call, err error) {
	d := json.NewDecoder(bytes.NewReader(line))
	d.DisallowUnknownFields()
	if d.Decode(&c) != nil || d.More() {
		return Call{}, errors.New("what came on the standard input is no call of gorun (not shown: it may hold a key)")
	}
	return c, c.check()
}

func (c *Call) check() error {
	switch {
	case len(c.Key) != KeySize:
		return fmt.Errorf("the key of the agents has %d bytes, and must have %d", len(c.Key), KeySize)
	case len(c.Addrs) == 0 || len(c.Addrs) > maxAddrs:
		return fmt.Errorf("gorun has %d addresses, and must have 1 to %d", len(c.Addrs), maxAddrs)
	case len(c.Host)+len(c.Build) > maxHost:
		return fmt.Errorf("the name of this host has %d bytes, and may have %d", len(c.Host), maxHost-len(c.Build))
	}
	for _, a := range c.Addrs {
		if host, port, err := net.SplitHostPort(a); err != nil || host == "" || port == "" {
			return fmt.Errorf("%.80q is no host:port", a)
		}
	}
	return nil
}

// handshaker is that of both sides. An agent is known by its host, so all are number 0 in the handshake.
func handshaker(job string, key []byte, rank int) *auth.Handshaker {
	return &auth.Handshaker{Protocol: protocol, Job: job, Rank: rank, Size: 1, TLS: true, Patience: patience,
		Secret: func() ([]byte, error) { return key, nil }}
}

const (
	// patience is how long a side that has proved itself may take for a step.
	patience = 30 * time.Second
	// perAddress is how long an address may take to answer. All are tried again until the caller gives up.
	perAddress = 5 * time.Second
	// The time between two rounds.
	firstRound, longestRound = 20 * time.Millisecond, time.Second
)

// Tests have less.
var (
	// late is how long gorun may be out of reach before Late is called.
	late = 3 * time.Second
	// strange is how long what answers at gorun's addresses may fail to prove that it is gorun of this job, and how
	// long gorun waits for another agent of a host whose agent was of another build. Neither is given up at once: a pod
	// that an earlier job of the same name has left may end, and gorun may be crowded.
	strange = 10 * time.Second
)

// Dial returns the stream to gorun, which it tries to reach until ctx ends, or until only others have answered for a
// while, which are not gorun of this job.
func (c *Call) Dial(ctx context.Context) (net.Conn, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	h := handshaker(c.Job, c.Key, 0)
	h.Patience = max(h.Patience, c.Patience)
	var last error
	begin, logged := time.Now(), false
	reached := begin // when gorun was last perhaps about to come
	for pause := firstRound; ; pause = min(2*pause, longestRound) {
		s, err := c.race(ctx, h)
		if err == nil {
			return c.enter(s)
		}
		if ctx.Err() == nil || last == nil {
			last = err
		}
		now := time.Now()
		if !isStrange(err) {
			reached = now
		}
		if now.Sub(reached) >= strange {
			return nil, &Error{Err: fmt.Errorf("gorun is not reached: for %v what answers there has not proved to be "+
				"gorun of this job, so the keys differ, or a proxy takes connections and closes them: %w", strange, err),
				Final: true}
		}
		if c.Late != nil && !logged && now.Sub(begin) >= late && ctx.Err() == nil {
			logged = true
			c.Late(fmt.Errorf("gorun is not reached yet: %w", err))
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			err := fmt.Errorf("gorun is not reached: %w", last)
			if why := context.Cause(ctx); why != ctx.Err() { // such as a signal
				err = fmt.Errorf("%w; %w", err, why)
			}
			return nil, err
		}
	}
}

// isStrange reports whether each address was answered by a process that has not proved to be gorun of this job.
func isStrange(err error) bool {
	if all, several := err.(interface{ Unwrap() []error }); several {
		return !slices.ContainsFunc(all.Unwrap(), func(err error) bool { return !isStrange(err) })
	}
	return auth.Why(err) != 0
}

// enter says whose agent this is.
func (c *Call) enter(s *auth.Session) (net.Conn, error) {
	if err := s.Confirm([]byte(c.Build + " " + c.Host)); err != nil {
		return nil, fmt.Errorf("gorun %w", err)
	}
	if why := s.Payload; len(why) > 0 {
		s.Close()
		return nil, refused(why)
	}
	return s.Finish()
}

// race returns the first session whose other side has proved itself. The others are closed: nothing has been said on
// them.
func (c *Call) race(ctx context.Context, h *auth.Handshaker) (*auth.Session, error) {
	s, won, errs := auth.Race(ctx, len(c.Addrs), func(trying context.Context, i int) (*auth.Session, error) {
		return try(ctx, trying, h, c.Addrs[i])
	}, func(s *auth.Session) { s.Close() })
	if !won {
		return nil, errors.Join(append(errs, ctx.Err())...)
	}
	return s, nil
}

// try dials one address, until trying ends. ctx bounds the session.
func try(ctx, trying context.Context, h *auth.Handshaker, addr string) (*auth.Session, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	limit := time.AfterFunc(perAddress, func() { cancel(fmt.Errorf("no answer in %v", perAddress)) })
	lost := context.AfterFunc(trying, func() { cancel(context.Cause(trying)) })
	s, err := tryOnce(ctx, h, addr)
	if inTime, open := limit.Stop(), lost(); err == nil && !(inTime && open) {
		s.Close()
		err = context.Cause(ctx)
	}
	if err != nil {
		cancel(nil)
		return nil, fmt.Errorf("%s: %w", addr, err)
	}
	return s, nil
}

func tryOnce(ctx context.Context, h *auth.Handshaker, addr string) (*auth.Session, error) {
	var d net.Dialer
	d.SetMultipathTCP(false)
	conn, err := d.DialContext(ctx, "tcp", addr)
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		return nil, err
	}
	return h.Dial(ctx, conn, auth.Launcher)
}

// raw is the connection under TLS. Frames say when they are complete, so that TLS need not; and saying so to a peer
// that does not read takes seconds.
func raw(conn net.Conn) net.Conn {
	if t, ok := conn.(*tls.Conn); ok {
		return t.NetConn()
	}
	return conn
}

// envNode is what Slurm calls the host of a task.
const envNode = "SLURMD_NODENAME"

// Dialling is the argument after the build of an agent that is to dial. The call comes on its standard input.
const Dialling = "dial"

// answering is how long an agent may take to have a call and to reach gorun.
const answering = 30 * time.Second

// Duty is what an agent with these arguments is for: Examine, or "" for ranks.
func Duty(args []string) string {
	if len(args) > 3 && args[1] == Word && args[len(args)-1] == Examine {
		return Examine
	}
	return ""
}

// Agent returns what connects an agent with gorun; nil: these are no arguments of an agent. It ends this process if
// another build is wanted.
func Agent(args []string) func(context.Context) (io.ReadWriter, error) {
	if Duty(args) != "" {
		args = args[:len(args)-1]
	}
	switch {
	case len(args) == 3 && args[1] == Word:
		CheckBuild(args[2])
		return standard
	case len(args) == 4 && args[1] == Word && args[3] == Dialling:
		CheckBuild(args[2])
		return func(ctx context.Context) (io.ReadWriter, error) { return answer(ctx, args[2]) }
	}
	return nil
}

// standard has the standard streams.
func standard(context.Context) (io.ReadWriter, error) {
	return struct {
		io.Reader
		io.Writer
	}{os.Stdin, os.Stdout}, Hello(os.Stdout)
}

// answer takes a call, and dials. Its standard input ends with gorun, and so does the stream.
func answer(ctx context.Context, build string) (io.ReadWriter, error) {
	ctx, cancel := context.WithTimeout(ctx, answering)
	defer cancel()
	type result struct {
		conn net.Conn
		err  error
	}
	done, gone := make(chan result, 1), make(chan struct{})
	go func() {
		c, err := readCall(os.Stdin)
		if err != nil {
			done <- result{nil, err}
			return
		}
		go func() {
			io.Copy(io.Discard, os.Stdin)
			close(gone)
			cancel()
		}()
		c.Build = build
		conn, err := c.Dial(ctx)
		done <- result{conn, err}
	}()
	select {
	case r := <-done:
		if r.err != nil {
			return nil, r.err
		}
		go func() {
			<-gone
			raw(r.conn).Close()
		}()
		return Dialled{r.conn}, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("no call of gorun has come (%w)", context.Cause(ctx))
	}
}

// Dialled is a stream whose last bytes are lost if its end is not waited for: the kernel resets a connection that is
// closed with something unread.
type Dialled struct{ net.Conn }

// readCall reads the first line.
func readCall(r io.Reader) (Call, error) {
	var line []byte
	for b := make([]byte, 1); len(line) < maxCall; {
		if _, err := io.ReadFull(r, b); err != nil {
			return Call{}, fmt.Errorf("the standard input has ended before a call of gorun came: %w", err)
		}
		if b[0] == '\n' {
			c, err := decodeCall(line)
			c.Host = cmp.Or(c.Host, os.Getenv(envNode))
			return c, err
		}
		line = append(line, b[0])
	}
	return Call{}, fmt.Errorf("a call of more than %d bytes", maxCall)
}
