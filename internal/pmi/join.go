package pmi

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/gorun-mpi/mpi/internal/auth"
)

// The variables in which gorun describes a rank and its job. EnvJob holds the job's name and is believed
// only when the launcher at the other end of the control socket answers with the same name, because the
// variable leaks into jobs that a rank starts by other launchers.
const (
	EnvFD        = "PMI_FD"
	EnvRank      = "PMI_RANK"
	EnvSize      = "PMI_SIZE"
	EnvPort      = "PMI_PORT"
	EnvID        = "PMI_ID"
	EnvJob       = "GORUN_JOB"
	EnvLocalRank = "GORUN_LOCAL_RANK"
	EnvLocalSize = "GORUN_LOCAL_SIZE"
	EnvCPUs      = "GORUN_CPUS"
	// EnvKey is for ranks that dial: dialled.go says what it is for. Join takes it out of the environment.
	EnvKey = "GORUN_KEY"
	// EnvPeerTimeout is how long a launcher that was dialled may leave unanswered what it is sent.
	EnvPeerTimeout = "GORUN_PEER_TIMEOUT"
)

// lookup reads one variable; tests replace the environment by a map.
type lookup func(name string) string

// Join connects to the launcher that PMI_FD or PMI_PORT leads to. It returns (nil, nil) when neither is set. It may
// take until ctx ends.
func Join(ctx context.Context) (*Client, error) {
	if os.Getenv(EnvKey) != "" {
		defer func() {
			os.Unsetenv(EnvKey)
			scrub(EnvKey)
		}()
	}
	return join(ctx, os.Getenv)
}

func join(ctx context.Context, env lookup) (*Client, error) {
	switch {
	case env(EnvFD) != "":
		c, err := joinFD(env)
		if err != nil {
			return nil, err
		}
		return begin(ctx, c, env)
	case env(EnvPort) != "":
		return joinPort(ctx, env)
	}
	return nil, nil
}

// ErrNotInherited is the error of Join in a process that has a launcher's variables and not the launcher's socket, such
// as a child process of a rank.
var ErrNotInherited = errors.New("that descriptor is no socket, so a rank started this process and no launcher")

// Offered says which variable of an environment leads to a launcher that speaks PMI-1, or "". live is false where it is
// PMI_FD and that descriptor is no socket: the variable is of a launcher that surrounds the one of this process.
func Offered(env func(name string) string) (variable string, live bool) {
	switch {
	case env(EnvFD) != "":
		fd, err := strconv.Atoi(env(EnvFD))
		return EnvFD, err != nil || isSocket(fd)
	case env(EnvPort) != "":
		return EnvPort, true
	}
	return "", false
}

// isSocket reports whether a descriptor of this process is open and a socket.
func isSocket(fd int) bool {
	var st syscall.Stat_t
	return syscall.Fstat(fd, &st) == nil && st.Mode&syscall.S_IFMT == syscall.S_IFSOCK
}

// begin owns c until it is returned.
func begin(ctx context.Context, c *Client, env lookup) (*Client, error) {
	c.start()
	if err := c.handshake(ctx, env); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// joinFD takes over the socket that the launcher left in descriptor PMI_FD.
func joinFD(env lookup) (*Client, error) {
	if err := allSet(env, EnvFD, EnvSize, EnvRank); err != nil {
		return nil, err
	}
	fd, err := number(env, EnvFD, 0, 1<<20)
	if err != nil {
		return nil, err
	}
	size, err := number(env, EnvSize, 1, 1<<30)
	if err != nil {
		return nil, err
	}
	rank, err := number(env, EnvRank, 0, size-1)
	if err != nil {
		return nil, err
	}
	conn, err := takeSocket(fd)
	if err != nil {
		return nil, fmt.Errorf("%s=%d: %w", EnvFD, fd, ErrNotInherited)
	}
	return newClient(conn, rank, size), nil
}

// takeSocket makes a net.Conn of an inherited descriptor and closes the inherited one. The duplicate is
// close-on-exec, so that processes started by this rank do not keep the control socket open.
func takeSocket(fd int) (net.Conn, error) {
	f := os.NewFile(uintptr(fd), "PMI_FD")
	if f == nil {
		return nil, errors.New("bad descriptor")
	}
	conn, err := net.FileConn(f)
	if err != nil {
		// Not ours: it may be anything and stays open. Without a reference f would be closed when it is collected.
		notOurs.Store(f, true)
		return nil, err
	}
	f.Close()
	return conn, nil
}

var notOurs sync.Map

// joinPort dials PMI_PORT. With a key the launcher must prove itself, and says the job's size; without one rank and
// size come by the initack handshake of PMI-1.
func joinPort(ctx context.Context, env lookup) (c *Client, err error) {
	key, err := parseKey(env(EnvKey))
	if err != nil {
		return nil, err
	}
	err = auth.Retry(ctx, patienceDialling, func() error {
		c, err = dialPort(ctx, env, key)
		return err
	})
	if err != nil {
		return nil, err
	}
	return begin(ctx, c, env)
}

func dialPort(ctx context.Context, env lookup, key []byte) (*Client, error) {
	if err := allSet(env, EnvPort, EnvID); err != nil {
		return nil, err
	}
	id, err := number(env, EnvID, 0, 1<<31-1)
	if err != nil {
		return nil, err
	}
	if _, _, err := net.SplitHostPort(env(EnvPort)); err != nil {
		return nil, fmt.Errorf("%s=%q is no host:port (%w)", EnvPort, env(EnvPort), err)
	}
	timeout, err := peerTimeout(env(EnvPeerTimeout))
	if err != nil {
		return nil, err
	}
	return dialServer(ctx, EnvPort+"=", Address{Addr: env(EnvPort), Rank: id, Key: key, Job: env(EnvJob),
		PeerTimeout: timeout})
}

// Address is where a Server listens, and what it takes to join there.
type Address struct {
	Addr        string // host:port
	Rank        int    // of this process
	Key         []byte // of the server's Options; nil: none, for servers of others
	Job         string // the server's Name
	Launcher    string // what Launcher returns
	PeerTimeout time.Duration
}

// Dial joins a job whose server is of this package. It tries once.
func Dial(ctx context.Context, s Address) (*Client, error) {
	c, err := dialServer(ctx, "", s)
	if err != nil {
		return nil, err
	}
	c.launcher, c.ours = s.Launcher, true
	return begin(ctx, c, nil)
}

// Join joins as a rank of this process's own server, over a connection inside of the process.
func (s *Server) Join(ctx context.Context, rank int, launcher string) (*Client, error) {
	near, far := net.Pipe()
	go s.ServeConn(rank, far)
	c := newClient(near, rank, s.size)
	c.launcher, c.ours = launcher, true
	return begin(ctx, c, nil)
}

// dialServer connects, and learns rank and size. source stands before the address in errors.
func dialServer(ctx context.Context, source string, s Address) (*Client, error) {
	var d net.Dialer // asks no name server about a numeric address
	conn, err := d.DialContext(ctx, "tcp", s.Addr)
	if err != nil {
		return nil, fmt.Errorf("wire-up step connect: %s%s: %w", source, s.Addr, auth.TurnedAway(err))
	}
	watchPeer(conn, s.PeerTimeout)
	c := newClient(conn, s.Rank, 0)
	step := "initack"
	if s.Key != nil {
		step = "authenticate"
		err = c.authenticate(ctx, s.Key, s.Job)
	} else {
		err = c.initack(ctx, s.Rank)
	}
	if err != nil {
		conn.Close()
		return nil, fmt.Errorf("wire-up step %s: %s%s: %w", step, source, s.Addr, err)
	}
	return c, nil
}

// initack runs before the reader starts, because its one request has four lines for an answer.
func (c *Client) initack(ctx context.Context, id int) error {
	if d, ok := ctx.Deadline(); ok {
		c.conn.SetDeadline(d)
		defer c.conn.SetDeadline(time.Time{})
	}
	stop := context.AfterFunc(ctx, func() { c.conn.SetDeadline(time.Now()) })
	defer stop()
	out, err := newLine("initack", "pmiid", strconv.Itoa(id)).encode()
	if err != nil {
		return err
	}
	if _, err := c.conn.Write(out); err != nil {
		return err
	}
	rank, size := -1, -1
	for i := range 4 {
		l, err := c.readHandshake()
		if err != nil {
			return err
		}
		if i == 0 {
			if l.cmd != "initack" || l.rc() != 0 {
				return fmt.Errorf("the launcher answered %q", l)
			}
			continue
		}
		if l.cmd != "set" {
			return fmt.Errorf("the launcher sent %q where cmd=set was due", l)
		}
		if n, err := l.number("rank"); err == nil {
			rank = n
		}
		if n, err := l.number("size"); err == nil {
			size = n
		}
	}
	if size < 1 || rank < 0 || rank >= size {
		return fmt.Errorf("the launcher said rank %d of %d", rank, size)
	}
	c.rank, c.size = rank, size
	return nil
}

func (c *Client) readHandshake() (line, error) {
	b, err := c.in.next()
	if err != nil {
		return line{}, err
	}
	return parseLine(b)
}

// handshake is init, the limits, the name, and with gorun the job's secret.
func (c *Client) handshake(ctx context.Context, env lookup) error {
	reply, err := c.request(ctx, "response_to_init", newLine("init", "pmi_version", "1", "pmi_subversion", "1"))
	if msg, _ := reply.get("msg"); err == nil && reply.rc() != 0 && msg == joinedBefore {
		return c.stepError("init", errors.New("a process of this rank has joined before, and only one can join: a script "+
			"that runs several programs starts each of them by a gorun of its own"))
	}
	if err == nil {
		err = c.refused("init", reply)
	}
	if err != nil {
		return err
	}
	if v, ok := reply.get("pmi_version"); ok && v != "1" {
		return c.stepError("init", fmt.Errorf("the launcher speaks PMI version %.20q, this library version 1", v))
	}
	if reply, err = c.request(ctx, "maxes", newLine("get_maxes")); err != nil {
		return err
	}
	if err := c.limits(reply); err != nil {
		return c.stepError("get_maxes", err)
	}
	if reply, err = c.request(ctx, "my_kvsname", newLine("get_my_kvsname")); err != nil {
		return err
	}
	name, ok := reply.get("kvsname")
	if !ok || len(name) > 256 {
		return c.stepError("get_my_kvsname", errors.New("the launcher gave the job no name"))
	}
	c.name = name
	if c.textLimit(c.keyMax-1) < 64 {
		return c.stepError("get_maxes", fmt.Errorf("values of %d characters are too short to be of use", c.valMax))
	}
	if c.launcher == "" {
		c.launcher = launcherName(env, name)
		c.ours = c.launcher == Gorun
	}
	if c.ours {
		return c.hello(ctx)
	}
	return nil
}

func (c *Client) limits(l line) error {
	key, err := l.number("keylen_max")
	if err != nil {
		return err
	}
	val, err := l.number("vallen_max")
	if err != nil {
		return err
	}
	if key < 16 || val < 64 {
		return fmt.Errorf("keys of %d and values of %d characters are too short to be of use", key, val)
	}
	c.keyMax, c.valMax = min(key, 256), min(val, maxWrite)
	return nil
}

// launcherName says by the job's name which launcher is at the other end. gorun's is in the environment too, and is
// unlike all others, so that a job that another launcher starts inside of gorun's is not taken for gorun's.
func launcherName(env lookup, kvsname string) string {
	switch {
	case env(EnvJob) != "" && env(EnvJob) == kvsname:
		return Gorun
	case strings.HasPrefix(kvsname, "kvs_"):
		return Hydra
	case env("SLURM_JOB_ID") != "":
		return "slurm"
	}
	return "pmi"
}

// hello is the first of our own commands: both sides check the version, the launcher says which ranks share a host, and
// over an inherited socket it hands out the secret.
func (c *Client) hello(ctx context.Context) error {
	reply, err := c.request(ctx, "gorun_welcome", newLine("gorun_hello", "version", strconv.Itoa(helloVersion),
		"gone", "1", "call", "1", "ask", "1"))
	if err != nil {
		return err
	}
	if v, _ := reply.number("version"); reply.rc() != 0 || v != helloVersion {
		return c.stepError("gorun_hello", fmt.Errorf(
			"gorun speaks version %d of its protocol, this program version %d: build both from the same release",
			v, helloVersion))
	}
	c.mapping, _ = reply.get("mapping")
	survives, _ := reply.get("survives")
	c.survives = survives == "1"
	if text, ok := reply.get("secret"); ok && c.secret == nil {
		if c.secret, err = b64.DecodeString(text); err != nil {
			return c.stepError("gorun_hello", errors.New("the job's secret is damaged"))
		}
	}
	return nil
}

// allSet returns an error that names all of the variables that set calls for and that are missing.
func allSet(env lookup, set string, others ...string) error {
	missing := slices.DeleteFunc(others, func(name string) bool { return env(name) != "" })
	switch len(missing) {
	case 0:
		return nil
	case 1:
		return fmt.Errorf("%s is set but %s is not: the launcher's environment is incomplete", set, missing[0])
	}
	return fmt.Errorf("%s is set but %s are not: the launcher's environment is incomplete",
		set, strings.Join(missing, " and "))
}

// number reads a variable that must hold a decimal number from lo to hi.
func number(env lookup, name string, lo, hi int) (int, error) {
	v := env(name)
	n, err := strconv.Atoi(v)
	if err != nil || n < lo || n > hi {
		return 0, fmt.Errorf("%s=%.40q is no number from %d to %d", name, v, lo, hi)
	}
	return n, nil
}
