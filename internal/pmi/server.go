package pmi

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gorun-mpi/mpi/internal/auth"
)

// EventKind says what has happened.
type EventKind int

const (
	EventInit     EventKind = iota // the rank has said init
	EventFinalize                  // the rank has said finalize: it may exit
	EventAbort                     // the rank wants the job ended: Code, Message, Consequence
	EventGarbage                   // what came was no PMI-1; the connection is being closed: Err
	EventClosed                    // the connection has ended; the last event of a rank
)

func (k EventKind) String() string {
	names := [...]string{"init", "finalize", "abort", "garbage", "closed"}
	if int(k) < len(names) {
		return names[k]
	}
	return "EventKind(" + strconv.Itoa(int(k)) + ")"
}

// Event is something that the launcher should know about a rank.
type Event struct {
	Kind        EventKind
	Rank        int
	Code        int
	Message     string
	Consequence bool // the rank has heard of another rank's end before
	Err         error
}

// State is what the server knows about a rank.
type State struct {
	Joined     bool // init was seen
	Finalized  bool // finalize was seen
	Aborted    bool // abort was seen
	PeerFailed bool // the rank has heard of another rank's end: what it does from then on may be a consequence
}

// Options of a Server. The zero value is good.
type Options struct {
	Name    string // the job's name (kvsname); "" for a random one
	AppNums []int  // the MPMD context of each rank; nil: all 0
	// Mapping is PMI_process_mapping; "" for all ranks on one node. Where one is too long, for PMI-1 or even for a rank of
	// ours, the ranks find out by themselves, and so they do with NoMapping.
	Mapping string
	// Key is what ranks that dial prove to know, and what the server proves to them (dialled.go); 32 bytes. It must
	// reach them in GORUN_KEY in their environment, by a way that no other user can read. nil: one is made.
	Key []byte
	// Tree: this is one of several servers, and serves Here of the ranks itself. Above is the next one on the way to
	// the server of all, nil in that. Those below are admitted by NewBelow.
	Tree  bool
	Here  int
	Above Above
	// Secret is what the ranks of the job share, 32 bytes; nil: one is made.
	Secret []byte
	// PeerTimeout: a TCP connection whose other end has not answered for that long has ended; 0: the default of
	// GORUN_PEER_TIMEOUT.
	PeerTimeout time.Duration
	// Survive: the barrier does not wait for ranks whose connection has ended. Else it waits in vain, until the
	// launcher ends the job. The first barriers, Joins of them, do so in any case: until they are over, a rank that ends
	// is for the launcher to deal with.
	Survive bool
	Joins   int
	Keys    []Pair                        // in the key-value space from the beginning
	Log     func(msg string, args ...any) // of connections that prove nothing; nil: silent
	// Fenced is called when all ranks of the job have left one of the first barriers, by a goroutine of its own, with how
	// many of these are to come: Joins for one in which ranks find out about the mapping. nil: nothing is called.
	Fenced func(left int)
	// Spawn starts a job for a rank, and has told called with nil for each of its Joins that is over, or once with why the
	// job has failed before. It does not wait for the job. nil: ranks that ask are refused.
	Spawn func(rank int, q Spawn, told func(error))
}

// NoMapping as the Mapping of Options: it is not known.
const NoMapping = "-"

// saysMapping reports whether ranks of ours are told of the mapping.
func (o *Options) saysMapping() bool { return o.Mapping != NoMapping && len(o.Mapping) <= mappingMax }

const (
	keyMax = 64
	// valMax makes a get_result line with any name and key stay under 1024 bytes, the buffer of MPICH's client.
	valMax       = 880
	writeTimeout = 30 * time.Second
	mappingMax   = maxRead / 2 // of a mapping in the welcome of a rank of ours
	outboxSize   = 4           // how many requests of a client may be unanswered before no more are read
	maxSpawn     = 1024        // lines of one mcmd=spawn
	secretSize   = 32
	keyNotFound  = "key_not_found"
	// An answer to a server below has the values of other keys, which that keeps for its ranks: few at first, and more
	// the more it asks.
	firstAnswer, maxAnswer = 16 << 10, 512 << 10
)

// Server is the launcher's end of all control connections of one job.
type Server struct {
	size   int
	opts   Options
	secret []byte
	events chan Event
	// Tests have less.
	authLimit         time.Duration // the constant
	maxKeys, maxBytes int           // of the key-value space

	mu        sync.Mutex
	local     int                  // guarded by mu; ranks that are served here, and that the barrier waits for
	acceptors []*auth.Acceptor     // guarded by mu
	kvs       map[string]string    // guarded by mu
	services  map[string]string    // guarded by mu; published names
	bytes     int                  // guarded by mu; of all keys and values above
	states    map[int]State        // guarded by mu; by rank
	conns     map[int]*serverConn  // guarded by mu; by rank, once it is connected; never reset
	entered   int                  // guarded by mu; ranks in the barrier. Equals the number of conns with inBarrier
	closed    bool                 // guarded by mu
	raised    bool                 // guarded by mu; the barrier waits for the server above
	fresh     []Pair               // guarded by mu; put since the last barrier, if there is a server above
	asked     map[string]*question // guarded by mu; by the text of the request
	order     []asked              // guarded by mu; what the server above has not answered
	held      map[string][]asked   // guarded by mu; by prefix: what waits for the answer to one like it
	spawning  map[int]func(line)   // guarded by mu; by rank: who is told what comes of its spawn
	below     []*Below             // guarded by mu
	ended     []int                // guarded by mu; ranks that Gone has told of
	reported  map[int]bool         // guarded by mu; ranks that Ended has told of
	in        int                  // guarded by mu; of them, those that are in the barrier
	told      answers
	joins     int // guarded by mu; how many of the first barriers are to come
	early     int // guarded by mu; ranks here, and servers below, that had ended before those were over
}

// serverConn is one rank's connection. Its goroutine reads and answers; a second one writes, because
// barrier_out comes from the rank that entered last and must not wait for a client that does not read.
//
// Each request but abort takes a place in owed, and gives rise to one line in outbox; the writer gives the place back.
type serverConn struct {
	s         *Server
	rank      int
	conn      net.Conn
	inherited bool // this process handed the other end to the rank, which gets the secret in clear
	in        lineReader
	owed      chan struct{} // holds one for each reply that is not written yet
	outbox    chan []byte   // of owed's size, so that it is never full; closed never: the writer ends with done
	done      chan struct{}
	inBarrier bool   // guarded by Server.mu
	follow    string // guarded by Server.mu; the key whose followers go out with the barrier; "": none
	listens   bool   // guarded by Server.mu; it wants to be told of ranks that have ended
	endsSent  int    // guarded by Server.mu; of how many it was
	// It wants to be told of ranks that call it, those that it has not been told of, whether it can be asked what it
	// does, what it has not been asked yet, whether it owes an answer, and whether it has ended. All are guarded by
	// Server.mu.
	takesCalls bool
	calls      []int // each rank at most once
	answers    bool  // it can be asked what it does
	question   *Question
	owes       bool
	left       bool
	notices    chan struct{} // has room for one: there are more
	initSeen   bool
	greeted    bool // gorun_hello was said: a rank of ours
	finalized  bool
	stalled    atomic.Bool // it did not read its replies for writeTimeout
}

// NewServer makes the server of a job of size ranks.
func NewServer(size int, o Options) *Server {
	if o.Name == "" {
		o.Name = "gorun_" + hex.EncodeToString(random(8))
	}
	if o.Mapping == "" {
		o.Mapping = fmt.Sprintf("(vector,(0,1,%d))", size)
	}
	if o.Key == nil {
		o.Key = random(keySize)
	}
	if o.Log == nil {
		o.Log = func(string, ...any) {}
	}
	if o.PeerTimeout == 0 {
		o.PeerTimeout, _ = peerTimeout("")
	}
	if o.Secret == nil {
		o.Secret = random(secretSize)
	}
	local := size
	if o.Tree {
		local = o.Here
	}
	joins := o.Joins
	if joins > 1 && !o.saysMapping() { // ranks of ours, which have one barrier more until they know it
		joins++
	}
	s := &Server{
		size: size, local: local, opts: o, secret: o.Secret, authLimit: authLimit, asked: map[string]*question{},
		maxKeys: 65536 + 4096*size, maxBytes: (64 + size) << 20,
		// A rank has five events at most (abort counts once), so that no connection ever waits for the reader.
		events:   make(chan Event, 5*local),
		kvs:      map[string]string{},
		services: map[string]string{},
		states:   map[int]State{},
		conns:    map[int]*serverConn{},
		held:     map[string][]asked{},
		spawning: map[int]func(line){},
		reported: map[int]bool{},
		told:     answers{come: make(chan struct{}, 1), all: map[int]Answer{}}, joins: joins,
	}
	for _, p := range o.Keys {
		s.kvs[p.Key] = p.Value
	}
	return s
}

func random(n int) []byte {
	b := make([]byte, n)
	rand.Read(b) // never fails: crypto/rand ends the process instead
	return b
}

// Name is the job's name; a rank must find it in GORUN_JOB.
func (s *Server) Name() string { return s.opts.Name }

// Secret is what the ranks of the job share.
func (s *Server) Secret() []byte { return s.secret }

// Key is what ranks that dial must find in GORUN_KEY.
func (s *Server) Key() string { return b64.EncodeToString(s.opts.Key) }

// Events delivers what the ranks did, in order for each rank. It is never closed; a slow reader loses nothing about
// ranks.
func (s *Server) Events() <-chan Event { return s.events }

// State is what is known of a rank right now.
func (s *Server) State(rank int) State {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.states[rank]
}

// Close ends all connections, and waits for those that were dialled.
func (s *Server) Close() {
	s.mu.Lock()
	s.closed = true
	s.giveUp()
	for _, c := range s.conns {
		c.conn.Close()
	}
	acceptors := s.acceptors
	s.mu.Unlock()
	for _, a := range acceptors {
		a.Close()
	}
}

// ServeConn serves the connection of one rank, whose other end this process handed to it, until it ends.
func (s *Server) ServeConn(rank int, conn net.Conn) error {
	defer conn.Close()
	c := &serverConn{s: s, conn: conn, inherited: true}
	if err := s.enter(c, rank); err != nil {
		return err
	}
	return s.attend(c)
}

// attend serves a connection that enter has admitted, and owns its reading side until it ends.
func (s *Server) attend(c *serverConn) error {
	rank := c.rank
	c.in.r = c.conn
	c.owed, c.outbox = make(chan struct{}, outboxSize), make(chan []byte, outboxSize)
	c.done, c.notices = make(chan struct{}), make(chan struct{}, 1)
	var writer sync.WaitGroup
	writer.Go(c.write)
	s.mu.Lock()
	s.conns[rank] = c // from here on barrier_out may be put into the outbox
	s.mu.Unlock()
	err := c.read()
	s.leave(c)
	close(c.done)
	writer.Wait()
	var bad *protocolError
	if errors.As(err, &bad) {
		s.events <- Event{Kind: EventGarbage, Rank: rank, Err: bad}
	}
	s.events <- Event{Kind: EventClosed, Rank: rank, Err: err}
	return err
}

// enter admits one connection for each rank, and refuses a second.
func (s *Server) enter(c *serverConn, rank int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return net.ErrClosed
	}
	if rank < 0 || rank >= s.size {
		return fmt.Errorf("no rank %d in a job of %d", rank, s.size)
	}
	if s.conns[rank] != nil {
		return fmt.Errorf("rank %d is connected already", rank)
	}
	c.rank = rank
	s.conns[rank] = &serverConn{conn: c.conn} // a placeholder without outbox, replaced by attend
	return nil
}

func (s *Server) leave(c *serverConn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c.left = true
	if c.inBarrier {
		c.inBarrier = false
		s.entered--
	}
	s.early++
	if s.opts.Survive {
		s.local--
		s.gather()
	}
}

// write sends what is put into the outbox; what is left there when the connection ends is sent as well, because
// finalize_ack may be among it. When the client takes no more, its replies are thrown away, and what it has said before
// is still read: an abort or finalize may be the last of it.
func (c *serverConn) write() {
	deaf := false
	put := func(b []byte) {
		if !deaf {
			c.conn.SetWriteDeadline(time.Now().Add(writeTimeout))
			_, err := c.conn.Write(b)
			if deaf = err != nil; errors.Is(err, os.ErrDeadlineExceeded) {
				c.stalled.Store(true)
				c.conn.Close() // the reader notices
			}
		}
	}
	send := func(b []byte) {
		put(b)
		<-c.owed
	}
	for {
		select {
		case b := <-c.outbox:
			send(b)
		case <-c.notices:
			put(slices.Concat(c.obituaries(), c.callLines(), c.questionLine()))
		case <-c.done:
			for len(c.outbox) > 0 {
				send(<-c.outbox)
			}
			return
		}
	}
}

// protocolError is what a client did wrong; anything else that ends a connection is the network's or the
// process's end.
type protocolError struct{ err error }

func (e *protocolError) Error() string { return e.err.Error() }
func (e *protocolError) Unwrap() error { return e.err }

var errStalled = errors.New("the client sends commands and does not read the replies")

func (c *serverConn) read() error {
	for {
		l, err := c.next()
		switch {
		case l.cmd == "abort":
			c.abort(l)
		case err == nil && l.cmd == stateCommand:
			c.state(l) // it has no reply
		case err == nil:
			c.owed <- struct{}{}
			err = c.serve(l)
		}
		switch {
		case err == nil:
			continue
		case c.stalled.Load():
			return &protocolError{errStalled}
		case err == io.EOF:
			return nil
		}
		return err
	}
}

// next returns an abort even with an error.
func (c *serverConn) next() (line, error) {
	b, err := c.in.next()
	if err == errLineTooLong {
		l, _ := parseAbort(b)
		return l, &protocolError{err}
	}
	if err != nil {
		return line{}, err
	}
	l, err := parseLine(b)
	if err == nil {
		return l, nil
	}
	if l, ok := parseAbort(b); ok {
		return l, nil
	}
	return line{}, &protocolError{err}
}

// serve answers one request other than abort. An error ends the connection.
func (c *serverConn) serve(l line) error {
	if l.multi {
		return c.spawn(l)
	}
	if !c.initSeen && l.cmd != "init" {
		return c.answer(errorReply(replyName(l.cmd), "init_must_come_first"))
	}
	if c.finalized && l.cmd != "init" {
		return &protocolError{fmt.Errorf("%.40q after finalize", l.cmd)}
	}
	switch l.cmd {
	case "init":
		return c.init(l)
	case "get_maxes":
		return c.answer(newLine("maxes", "rc", "0", "kvsname_max", "256",
			"keylen_max", strconv.Itoa(keyMax), "vallen_max", strconv.Itoa(valMax)))
	case "get_appnum":
		return c.answer(newLine("appnum", "rc", "0", "appnum", strconv.Itoa(c.appNum())))
	case "get_my_kvsname":
		return c.answer(newLine("my_kvsname", "rc", "0", "kvsname", c.s.opts.Name))
	case "get_universe_size":
		return c.answer(newLine("universe_size", "rc", "0", "size", strconv.Itoa(c.s.size)))
	case "put":
		return c.answer(c.s.put(l))
	case "get":
		c.outbox <- c.get(l).bytes()
		return nil
	case "barrier_in":
		return c.barrier(l)
	case "finalize":
		return c.finalize()
	case "publish_name", "lookup_name", "unpublish_name":
		return c.answer(c.service(l))
	case callCommand:
		return c.answer(c.call(l))
	case peerFailedCommand:
		<-c.owed // it has no reply
		c.s.change(c.rank, func(st *State) { st.PeerFailed = true })
		return nil
	case "gorun_hello":
		return c.hello(l)
	}
	return c.answer(errorReply(replyName(l.cmd), "unknown_command"))
}

// replyName is the name under which a client expects the answer to cmd.
func replyName(cmd string) string {
	switch cmd {
	case "init":
		return "response_to_init"
	case "get_maxes", "get_appnum", "get_my_kvsname", "get_universe_size":
		return strings.TrimPrefix(cmd, "get_")
	case "barrier_in":
		return "barrier_out"
	case "finalize":
		return "finalize_ack"
	case "publish_name", "lookup_name", "unpublish_name":
		return strings.TrimSuffix(cmd, "_name") + "_result"
	case "gorun_hello":
		return "gorun_welcome"
	}
	if len(cmd) > 64 {
		cmd = cmd[:64]
	}
	return cmd + "_result"
}

func errorReply(name, msg string) line { return newLine(name, "rc", "-1", "msg", msg) }

// answer queues the reply to a request, for which there is room.
func (c *serverConn) answer(l line) error {
	b, err := l.encode()
	if err == nil {
		c.outbox <- b
	}
	return err
}

func (c *serverConn) appNum() int {
	if c.rank < len(c.s.opts.AppNums) {
		return c.s.opts.AppNums[c.rank]
	}
	return 0
}

// joinedBefore is why a second init of a rank is refused.
const joinedBefore = "a_process_of_this_rank_has_joined_before"

func (c *serverConn) init(l line) error {
	if v, _ := l.get("pmi_version"); v != "1" {
		return c.answer(newLine("response_to_init", "rc", "-1", "pmi_version", "1", "pmi_subversion", "1",
			"msg", "only_PMI_version_1_is_spoken_here"))
	}
	if c.initSeen { // by another process, which has the same socket
		return c.answer(errorReply("response_to_init", joinedBefore))
	}
	c.initSeen = true
	c.s.note(Event{Kind: EventInit, Rank: c.rank}, func(st *State) { st.Joined = true })
	return c.answer(newLine("response_to_init", "rc", "0", "pmi_version", "1", "pmi_subversion", "1"))
}

// note records a change of state before the event about it can be seen.
func (s *Server) note(e Event, change func(*State)) {
	s.change(e.Rank, change)
	s.events <- e
}

func (s *Server) change(rank int, change func(*State)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.states[rank]
	change(&st)
	s.states[rank] = st
}

func (c *serverConn) finalize() error {
	c.finalized = true
	c.s.note(Event{Kind: EventFinalize, Rank: c.rank}, func(st *State) { st.Finalized = true })
	return c.answer(newLine("finalize_ack", "rc", "0"))
}

func (c *serverConn) abort(l line) {
	before := c.s.State(c.rank)
	if before.Aborted {
		return
	}
	code, err := l.number("exitcode")
	if err != nil {
		code = 1
	}
	msg, _ := l.get("message")
	if text, err := b64.DecodeString(msg); err == nil && c.greeted {
		msg = string(text)
	} else {
		msg = unescape(msg)
	}
	c.s.note(Event{Kind: EventAbort, Rank: c.rank, Code: code, Message: msg, Consequence: before.PeerFailed},
		func(st *State) { st.Aborted = true })
}

func (c *serverConn) hello(l line) error {
	v, err := l.number("version")
	if err != nil || v != helloVersion {
		return c.answer(newLine("gorun_welcome", "rc", "-1", "version", strconv.Itoa(helloVersion)))
	}
	c.greeted = true
	if v, _ := l.get("gone"); v == "1" {
		c.s.listen(c)
	}
	if v, _ := l.get("call"); v == "1" {
		c.s.mu.Lock()
		c.takesCalls = true
		c.s.mu.Unlock()
	}
	if v, _ := l.get("ask"); v == "1" {
		c.s.mu.Lock()
		c.answers = true
		c.s.mu.Unlock()
	}
	reply := newLine("gorun_welcome", "rc", "0", "version", strconv.Itoa(helloVersion))
	if c.s.opts.saysMapping() {
		reply.fields = append(reply.fields, field{"mapping", c.s.opts.Mapping})
	}
	if c.s.opts.Survive {
		reply.fields = append(reply.fields, field{"survives", "1"})
	}
	if c.inherited {
		reply.fields = append(reply.fields, field{"secret", b64.EncodeToString(c.s.secret)})
	}
	c.outbox <- reply.bytes()
	return nil
}

// barrier counts this rank in; the last one lets all out.
func (c *serverConn) barrier(l line) error {
	if g, ok := l.get("group"); ok && g != "WORLD" {
		return c.answer(errorReply("barrier_out", "only_group=WORLD"))
	}
	s := c.s
	s.mu.Lock()
	if c.inBarrier {
		s.mu.Unlock()
		return c.answer(errorReply("barrier_out", "this_rank_is_in_the_barrier_already"))
	}
	c.inBarrier = true
	if c.follow = ""; c.greeted {
		c.follow, _ = l.get(followKey)
	}
	s.entered++
	s.gather()
	s.mu.Unlock()
	return nil
}

// followKey is what a rank of ours adds to barrier_in: a key of its own, whose followers it will want.
const followKey = "follow"

// release is called with mu held when all ranks are in.
func (s *Server) release() {
	if s.joins > 0 {
		s.joins--
		if s.opts.Fenced != nil {
			go s.opts.Fenced(s.joins)
		}
	}
	s.entered, s.in = 0, 0
	for _, b := range s.below { // first: their ranks are further away
		b.in = false
		b.down.Release()
	}
	for _, c := range s.conns {
		if !c.inBarrier { // gone since
			continue
		}
		c.inBarrier = false
		c.outbox <- s.addFollowers(newLine("barrier_out", "rc", "0"), c.follow, maxRead).bytes()
	}
}

// put answers a put. The space is bounded: a rank that fills it is refused, the others go on.
func (s *Server) put(l line) line {
	name, key, value, bad := s.kvsKey(l, true)
	if bad != "" {
		return errorReply("put_result", bad)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, dup := s.kvs[key]; dup {
		return errorReply("put_result", "duplicate_key")
	}
	if !s.room(len(key) + len(value)) {
		return errorReply("put_result", "no_room_in_"+name)
	}
	s.kvs[key] = value
	if s.opts.Above != nil {
		s.fresh = append(s.fresh, Pair{key, value})
	}
	return newLine("put_result", "rc", "0", "msg", "success")
}

// room reserves n bytes. It reports whether there is room for them. mu is held.
func (s *Server) room(n int) bool {
	if len(s.kvs)+len(s.services) >= s.maxKeys || s.bytes+n > s.maxBytes {
		return false
	}
	s.bytes += n
	return true
}

// kvsKey takes the arguments of put and get apart and checks them.
func (s *Server) kvsKey(l line, needValue bool) (name, key, value, bad string) {
	name, _ = l.get("kvsname")
	key, _ = l.get("key")
	value, hasValue := l.get("value")
	switch {
	case name != s.opts.Name:
		bad = "kvsname_unknown"
	case key == "" || len(key) > keyMax:
		bad = "key_empty_or_too_long"
	case needValue && (!hasValue || len(value) > valMax):
		bad = "value_missing_or_too_long"
	case needValue && strings.HasPrefix(key, "PMI_"):
		bad = "keys_beginning_with_PMI_are_reserved"
	}
	return name, key, value, bad
}

// get is called with mu held.
func (s *Server) get(l line) line {
	_, key, _, bad := s.kvsKey(l, false)
	if bad != "" {
		return errorReply("get_result", bad)
	}
	switch {
	case key == mappingKey && s.opts.Mapping != NoMapping && len(s.opts.Mapping) <= valMax:
		return newLine("get_result", "rc", "0", "msg", "success", "value", s.opts.Mapping)
	case key == "universeSize":
		return newLine("get_result", "rc", "0", "msg", "success", "value", strconv.Itoa(s.size))
	}
	value, ok := s.kvs[key]
	if !ok {
		return newLine("get_result", "rc", "-1", "msg", keyNotFound, "value", "unknown")
	}
	return newLine("get_result", "rc", "0", "msg", "success", "value", value)
}

// get answers a get. To a rank of ours the reply has what room it leaves for the values of the keys that follow, which
// the rank is likely to ask for next: a key cannot be put again, so no value is stale.
func (c *serverConn) get(l line) line {
	s := c.s
	s.mu.Lock()
	reply := s.get(l)
	s.mu.Unlock()
	if missing(reply) && s.opts.Above != nil {
		reply = s.askAndWait(l)
	}
	if !c.greeted || reply.rc() != 0 {
		return reply
	}
	key, _ := l.get("key")
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.addFollowers(reply, key, maxRead)
}

// service answers a request for a published name, of which only the server of the whole job knows.
func (c *serverConn) service(l line) line {
	if c.s.opts.Above != nil {
		return c.s.askAndWait(l)
	}
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	return c.s.service(l)
}

// addFollowers adds to reply the values of the keys that follow key by number, and after the last one those from 0 on,
// as far as there is room for them in a line of so many bytes. mu is held.
func (s *Server) addFollowers(reply line, key string, limit int) line {
	prefix, number, ok := numbered(key)
	if !ok {
		return reply
	}
	size, wrapped := len(reply.String())+1, false
	for n := number + 1; !wrapped || n < number; n++ {
		next := field{key: prefix + strconv.Itoa(n)}
		var found bool
		if next.value, found = s.kvs[next.key]; !found {
			if wrapped {
				break
			}
			n, wrapped = -1, true
			continue
		}
		if size += len(" =") + len(next.key) + len(next.value); size > limit {
			break
		}
		reply.fields = append(reply.fields, next)
	}
	return reply
}

// numbered takes a key apart that ends in a number after a dash, as a rank's does.
func numbered(key string) (prefix string, number int, ok bool) {
	i := strings.LastIndexByte(key, '-') + 1
	number, err := strconv.Atoi(key[i:])
	return key[:i], number, i > 0 && err == nil && number >= 0 && number < 1<<30
}

// service answers publish_name, lookup_name, unpublish_name and calls from servers below. mu is held.
func (s *Server) service(l line) line {
	if l.cmd == callCommand {
		return s.pass(l)
	}
	reply := replyName(l.cmd)
	name, _ := l.get("service")
	port, _ := l.get("port")
	if name == "" || len(name) > valMax/2 || len(port) > valMax/2 {
		return newLine(reply, "rc", "1", "info", "fail", "msg", "service_or_port_missing_or_too_long")
	}
	old, known := s.services[name]
	switch {
	case l.cmd == "publish_name" && known:
		return newLine(reply, "rc", "1", "info", "fail", "msg", "duplicate_service")
	case l.cmd == "publish_name" && !s.room(len(name)+len(port)):
		return newLine(reply, "rc", "1", "info", "fail", "msg", "no_room")
	case l.cmd == "publish_name":
		s.services[name] = port
	case !known:
		return newLine(reply, "rc", "1", "info", "fail", "msg", "service_not_found")
	case l.cmd == "lookup_name":
		return newLine(reply, "port", old, "info", "ok", "rc", "0", "msg", "success")
	default:
		delete(s.services, name)
		s.bytes -= len(name) + len(old)
	}
	return newLine(reply, "info", "ok", "rc", "0", "msg", "success")
}
