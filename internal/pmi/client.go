package pmi

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// abortLimit is how long Abort waits for a launcher that does not read.
const abortLimit = time.Second

// helloVersion is the version of our own commands (gorun_hello and what may follow).
const helloVersion = 1

var (
	// ErrNoKey is returned by Get for a key that no rank has put before the last Fence.
	ErrNoKey = errors.New("no such key")
	// ErrLost is wrapped in every error that means: the launcher's end of the control socket is gone.
	ErrLost = errors.New("the launcher's control connection has ended")
	// ErrFinalized is returned by every call after Finalize or Close.
	ErrFinalized = errors.New("the job has been left (Finalize or Close was called)")
)

// Client is a rank's end of the control connection. All methods may be called from any goroutine;
// PMI-1 knows one request at a time, so they queue. A request waits until its context ends or the connection does.
type Client struct {
	conn     net.Conn
	in       lineReader // owned by Join until the reader starts, then by the reader
	rank     int
	size     int
	name     string // kvsname
	launcher string
	ours     bool // the server is of this package, and speaks more than PMI-1
	secret   []byte
	mapping  string // gorun's PMI_process_mapping; "": the launcher is asked
	keyMax   int    // keylen_max, as the launcher said
	valMax   int    // vallen_max, as the launcher said

	// turn holds one token: its holder owns the wire for one request and its reply, and the
	// fields broken and owed.
	turn chan struct{}
	// broken is the reason why no further request can be made: a barrier was given up, or the launcher broke the
	// protocol.
	broken error
	owed   bool // the reply to a request that was given up is still to come, before any other

	gets  chan struct{}     // its holder is in getText
	ahead map[string]string // what came with the replies to other gets; of the holder of gets

	writing sync.Mutex // one whole line at a time; Abort takes this and not the turn

	waiting atomic.Bool // a reply is to come; set before the write of its request, cleared by the holder of the turn
	replies chan line   // from the reader to the holder of the turn
	dead    chan struct{}
	deadErr error // why the reader ended; written before dead is closed

	gone
	questions chan Question // has room for one
	spawns    underWay

	leaving atomic.Bool // Finalize or Close has begun: the end of the connection is no loss
	lost    chan struct{}
	closing sync.Once
}

func newClient(conn net.Conn, rank, size int) *Client {
	c := &Client{
		conn: conn, rank: rank, size: size,
		keyMax: 64, valMax: 1024,
		turn:    make(chan struct{}, 1),
		gets:    make(chan struct{}, 1),
		ahead:   map[string]string{},
		replies: make(chan line, 1),
		dead:    make(chan struct{}),
		lost:    make(chan struct{}),
		gone:    gone{wake: make(chan struct{}, 1)},

		questions: make(chan Question, 1),
		spawns:    underWay{turn: make(chan struct{}, 1)},
	}
	c.in.r = conn
	c.turn <- struct{}{}
	return c
}

// Rank is this process's number in the job.
func (c *Client) Rank() int { return c.rank }

// Size is the number of ranks in the job.
func (c *Client) Size() int { return c.size }

// Name is the job's name, unique on this host at this time (PMI's kvsname).
func (c *Client) Name() string { return c.name }

// Launcher is Gorun or Hydra, slurm, or pmi for any other launcher, as the launcher at the other end of the connection
// has proved: variables of another one that surrounds it have no say. After Dial it is what the caller has said.
func (c *Client) Launcher() string { return c.launcher }

// What Launcher returns for launchers whose environment says more about the job.
const (
	Gorun = "gorun"
	Hydra = "hydra"
)

// Secret is known to the ranks of this job only. It is nil under launchers other than gorun, and
// where gorun was dialled and there was no key to prove anything by.
func (c *Client) Secret() []byte { return append([]byte(nil), c.secret...) }

// textLimit is how many characters of value fit into a put of a key of this length and into the reply to its get.
func (c *Client) textLimit(keyLen int) int {
	put := len("cmd=put kvsname= key= value=\n") + len(c.name) + keyLen
	got := len("cmd=get_result rc=0 msg=success found=TRUE value=\n")
	return min(maxWrite-max(put, got), c.valMax-1)
}

// Lost is closed when the control connection ends although this rank has not called Finalize or
// Close: the launcher is dead, or has given the job up. It is closed without any call.
func (c *Client) Lost() <-chan struct{} { return c.lost }

// start hands the receiving side to the reader.
func (c *Client) start() { go c.read() }

// read owns c.in. It hands each line to the one request that waits, and notices the end of the connection.
func (c *Client) read() {
	err := c.readLines()
	c.deadErr = err
	close(c.dead)
	if !c.leaving.Load() {
		close(c.lost)
	}
	c.conn.Close()
}

func (c *Client) readLines() error {
	for {
		b, err := c.in.next()
		if err != nil {
			if err == io.EOF {
				return ErrLost
			}
			return fmt.Errorf("%w: %w", ErrLost, err)
		}
		l, err := parseLine(b)
		if err != nil {
			return fmt.Errorf("%w: the launcher sent %w", ErrLost, err)
		}
		if (l.cmd == goneCommand || l.cmd == calledCommand) && c.heard(l, c.size) {
			continue
		}
		if l.cmd == askCommand && c.ours && c.asked(l) {
			continue
		}
		if l.cmd == replyName(spawnCommand) && c.ours && c.spawns.heard(l) {
			continue
		}
		// A launcher that speaks out of turn would make every later reply answer the wrong question.
		if !c.waiting.Load() {
			return fmt.Errorf("%w: the launcher sent %q without being asked", ErrLost, l.cmd)
		}
		select {
		case c.replies <- l:
		default:
			return fmt.Errorf("%w: the launcher sent %q after a reply", ErrLost, l.cmd)
		}
	}
}

// request sends one line and returns the reply, which must be named want.
func (c *Client) request(ctx context.Context, want string, l line) (line, error) {
	out, err := l.encode()
	if err != nil {
		return line{}, c.stepError(l.cmd, err)
	}
	return c.requestText(ctx, want, l.cmd, out)
}

// requestText is request of what is encoded already.
func (c *Client) requestText(ctx context.Context, want, cmd string, out []byte) (line, error) {
	select {
	case <-c.turn:
	case <-ctx.Done():
		return line{}, c.stepError(cmd, context.Cause(ctx))
	}
	defer func() { c.turn <- struct{}{} }()
	reply, err := c.exchange(ctx, want, cmd, out)
	if err != nil {
		return line{}, c.stepError(cmd, err)
	}
	return reply, nil
}

// exchange runs while its caller holds the turn.
func (c *Client) exchange(ctx context.Context, want, cmd string, out []byte) (line, error) {
	if c.broken != nil {
		return line{}, c.broken
	}
	if ctx.Err() != nil {
		return line{}, context.Cause(ctx)
	}
	if c.owed {
		if _, err := c.reply(ctx); err != nil {
			return line{}, err
		}
		c.owed = false
	}
	c.waiting.Store(true)
	if err := c.writeRequest(ctx, out); err != nil {
		return line{}, err
	}
	reply, err := c.reply(ctx)
	switch {
	case err == nil:
		return c.check(want, reply)
	case cmd == "barrier_in":
		c.broken = errors.New("an earlier barrier_in was given up, and cannot be taken back")
	default:
		c.owed = true
	}
	return line{}, err
}

// writeRequest runs while its caller holds the turn.
func (c *Client) writeRequest(ctx context.Context, out []byte) error {
	err := c.write(ctx, out)
	if err != nil {
		// The reader says best why a connection is gone.
		select {
		case <-c.dead:
			err = c.deadErr
		default:
		}
		c.broken = err
	}
	return err
}

// send makes a request whose answer is no reply in its turn.
func (c *Client) send(ctx context.Context, out []byte) error {
	select {
	case <-c.turn:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() { c.turn <- struct{}{} }()
	if c.broken != nil || ctx.Err() != nil {
		return cmp.Or(c.broken, context.Cause(ctx))
	}
	return c.writeRequest(ctx, out)
}

// reply waits for one that is to come.
func (c *Client) reply(ctx context.Context) (line, error) {
	select {
	case reply := <-c.replies:
		c.waiting.Store(false)
		return reply, nil
	case <-c.dead:
		select { // the last line may have come together with the end
		case reply := <-c.replies:
			return reply, nil
		default:
		}
		return line{}, c.deadErr
	case <-ctx.Done():
		return line{}, context.Cause(ctx)
	}
}

func (c *Client) check(want string, reply line) (line, error) {
	if reply.cmd != want {
		c.broken = fmt.Errorf("the launcher answered %q where %q was due", reply.cmd, want)
		return line{}, c.broken
	}
	return reply, nil
}

// write sends one whole line. If the context's time is over first, the error says so.
func (c *Client) write(ctx context.Context, b []byte) error {
	c.writing.Lock()
	defer c.writing.Unlock()
	limit, has := ctx.Deadline() // zero: none
	c.conn.SetWriteDeadline(limit)
	_, err := c.conn.Write(b)
	if errors.Is(err, os.ErrDeadlineExceeded) && has && !time.Now().Before(limit) { // or it was Abort's
		<-ctx.Done()
		err = fmt.Errorf("%w: %w", context.Cause(ctx), err)
	}
	return err
}

// stepError names the step, the rank and the launcher.
func (c *Client) stepError(step string, err error) error {
	if c.leaving.Load() && (errors.Is(err, ErrLost) || errors.Is(err, net.ErrClosed)) {
		err = ErrFinalized
	}
	return fmt.Errorf("wire-up step %s of rank %d (launcher: %s): %w", step, c.rank, cmp.Or(c.launcher, "pmi"), err)
}

// refused turns rc != 0 into an error.
func (c *Client) refused(step string, l line) error {
	if l.rc() == 0 {
		return nil
	}
	msg, _ := l.get("msg")
	return c.stepError(step, fmt.Errorf("the launcher refused it (rc=%d %.80q)", l.rc(), unescape(msg)))
}

// Put stores value under key; other ranks see it after the next Fence. Each key can be put once in a job.
func (c *Client) Put(ctx context.Context, key string, value []byte) error {
	if c.leaving.Load() {
		return c.stepError("put", ErrFinalized)
	}
	if err := checkKey(key, c.keyMax); err != nil {
		return c.stepError("put", err)
	}
	parts, err := splitValue(value, c.textLimit(len(key)+partSuffix))
	if err != nil {
		return c.stepError("put", err)
	}
	for i, text := range parts {
		l := newLine("put", "kvsname", c.name, "key", partKey(key, i), "value", text)
		reply, err := c.request(ctx, "put_result", l)
		if err == nil {
			err = c.refused("put", reply)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func partKey(key string, i int) string {
	if i == 0 {
		return key
	}
	return key + "." + strconv.Itoa(i)
}

// Get returns what some rank has put under key before the last Fence, or ErrNoKey.
func (c *Client) Get(ctx context.Context, key string) ([]byte, error) {
	if c.leaving.Load() {
		return nil, c.stepError("get", ErrFinalized)
	}
	if err := checkKey(key, c.keyMax); err != nil {
		return nil, c.stepError("get", err)
	}
	text, err := c.getText(ctx, key)
	if err != nil {
		return nil, err
	}
	return c.value(ctx, key, text)
}

// Known is Get for a value that the launcher has sent unasked; nil: it has not, or not all of it, or a Get is under
// way.
func (c *Client) Known(key string) []byte {
	select {
	case c.gets <- struct{}{}:
	default:
		return nil
	}
	text, ok := c.ahead[key]
	<-c.gets
	if !ok {
		return nil
	}
	if first, parts, err := firstPart(text); err == nil && parts == 1 {
		if value, err := decodeValue(first); err == nil {
			return value
		}
	}
	return nil
}

// value is what text, and the parts that follow it, stand for.
func (c *Client) value(ctx context.Context, key, text string) ([]byte, error) {
	first, parts, err := firstPart(text)
	if err != nil {
		return nil, c.stepError("get", fmt.Errorf("key %s: %w", key, err))
	}
	var all strings.Builder
	all.WriteString(first)
	for i := 1; i < parts; i++ {
		text, err := c.getText(ctx, partKey(key, i))
		if err != nil {
			return nil, err
		}
		all.WriteString(text)
		if all.Len() > b64.EncodedLen(MaxPut) {
			return nil, c.stepError("get", fmt.Errorf("key %s: the value is longer than %d bytes", key, MaxPut))
		}
	}
	value, err := decodeValue(all.String())
	if err != nil {
		return nil, c.stepError("get", fmt.Errorf("key %s: %w", key, err))
	}
	return value, nil
}

// mappingKey is where launchers say which ranks share a host.
const mappingKey = "PMI_process_mapping"

// Mapping is what the launcher says of that (internal/place reads it); ErrNoKey if it does not. gorun has said it with
// its welcome, others are asked.
func (c *Client) Mapping(ctx context.Context) (string, error) {
	if c.mapping != "" {
		return c.mapping, nil
	}
	return c.getText(ctx, mappingKey)
}

// getText takes the value from what came with an earlier reply, or asks for it.
func (c *Client) getText(ctx context.Context, key string) (string, error) {
	select {
	case c.gets <- struct{}{}: // one after the other, since one reply may have the values that others want
	case <-ctx.Done():
		return "", c.stepError("get", context.Cause(ctx))
	}
	defer func() { <-c.gets }()
	if text, ok := c.ahead[key]; ok {
		delete(c.ahead, key)
		return text, nil
	}
	reply, err := c.request(ctx, "get_result", newLine("get", "kvsname", c.name, "key", key))
	if err != nil {
		return "", err
	}
	text, ok := reply.get("value")
	if found, has := reply.get("found"); reply.rc() != 0 || !ok || (has && strings.EqualFold(found, "false")) {
		return "", c.stepError("get", fmt.Errorf("key %s: %w", key, ErrNoKey))
	}
	if c.ours {
		c.keep(key, reply)
	}
	return text, nil
}

// aheadMax bounds what is kept of values that no rank may ask for.
const aheadMax = 1024

// keep keeps the values of the keys that follow key by number.
func (c *Client) keep(key string, reply line) {
	prefix, _, ok := numbered(key)
	if !ok {
		return
	}
	for _, f := range reply.fields {
		if p, _, ok := numbered(f.key); ok && p == prefix && len(c.ahead) < aheadMax {
			c.ahead[f.key] = f.value
		}
	}
}

// Fence waits until every rank of the job has called it, however long they work before; all puts made before are
// visible afterwards.
// A Fence whose context ends leaves the client unusable for anything but Abort and Close, because PMI
// cannot take a barrier back.
func (c *Client) Fence(ctx context.Context) error {
	_, err := c.fence(ctx, newLine("barrier_in"))
	return err
}

// FenceAhead is a Fence after which the values of keys that follow key by number are Known, as many as gorun has sent.
func (c *Client) FenceAhead(ctx context.Context, key string) error {
	if !c.ours {
		return c.Fence(ctx)
	}
	reply, err := c.fence(ctx, newLine("barrier_in", followKey, key))
	if err != nil {
		return err
	}
	select {
	case c.gets <- struct{}{}:
		c.keep(key, reply)
		<-c.gets
	default: // a Get asks for itself
	}
	return nil
}

func (c *Client) fence(ctx context.Context, l line) (line, error) {
	if c.leaving.Load() {
		return line{}, c.stepError("barrier_in", ErrFinalized)
	}
	reply, err := c.request(ctx, "barrier_out", l)
	if err == nil {
		err = c.refused("barrier_in", reply)
	}
	return reply, err
}

// MaxMessage is how many bytes of the message of an Abort a launcher of this package gets.
const MaxMessage = 600

// peerFailedCommand says that the rank has heard of another rank's end. It has no answer.
const peerFailedCommand = "gorun_peer_failed"

// PeerFailed tells gorun that this rank has heard of the end of another one, so that gorun blames that one and not this
// rank for what this rank does next. Other launchers are told nothing.
func (c *Client) PeerFailed() error {
	if !c.ours || c.leaving.Load() {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), abortLimit)
	defer cancel()
	if err := c.write(ctx, newLine(peerFailedCommand).bytes()); err != nil {
		return c.stepError(peerFailedCommand, err)
	}
	return nil
}

// Abort asks the launcher to end the whole job with this exit code. It does not wait for anything, not
// even for a Fence in progress; the caller should exit with the same code right afterwards.
func (c *Client) Abort(code int, message string) error {
	if c.leaving.Load() {
		return c.stepError("abort", ErrFinalized)
	}
	l := newLine("abort", "exitcode", strconv.Itoa(code))
	// Other launchers take the rest of the line for the code, or split it at blanks.
	if c.ours && message != "" {
		l.fields = append(l.fields, field{"message", b64.EncodeToString([]byte(truncate(message, MaxMessage)))})
	}
	out, err := l.encode()
	if err != nil {
		return c.stepError("abort", err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), abortLimit)
	defer cancel()
	limit, _ := ctx.Deadline()
	c.conn.SetWriteDeadline(limit) // also of a write that is under way
	if err := c.write(ctx, out); err != nil {
		return c.stepError("abort", err)
	}
	return nil
}

func truncate(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return strings.ToValidUTF8(s[:n], "") + "..."
}

// Finalize says to the launcher that this rank may exit, and closes the connection. From its call on,
// Lost does not fire and the rank may exit with code 0.
func (c *Client) Finalize(ctx context.Context) error {
	if c.leaving.Swap(true) {
		return c.stepError("finalize", ErrFinalized)
	}
	reply, err := c.request(ctx, "finalize_ack", newLine("finalize"))
	if errors.Is(err, ErrFinalized) { // this is the first Finalize, so the launcher is gone
		err = fmt.Errorf("wire-up step finalize of rank %d (launcher: %s): %w", c.rank, c.launcher, ErrLost)
	}
	if err == nil {
		err = c.refused("finalize", reply)
	}
	c.Close()
	return err
}

// Close closes the connection without a word. gorun takes that for a failure of this rank unless
// Finalize has been called.
func (c *Client) Close() error {
	c.leaving.Store(true)
	var err error
	c.closing.Do(func() { err = c.conn.Close() })
	<-c.dead
	return err
}
