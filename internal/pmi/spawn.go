package pmi

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"
)

// A rank has the launcher start a job of other processes by PMI-1's only request of several lines:
//
//	mcmd=spawn
//	nprocs=N
//	execname=PROGRAM
//	totspawns=1
//	spawnssofar=1
//	argN=ARGUMENT             N from 1 on
//	argcnt=N
//	preput_num=N
//	preput_key_N=KEY          N from 0 on
//	preput_val_N=VALUE
//	info_num=N
//	info_key_N=KEY            wdir; gorun_limit and gorun_quoted, which only gorun knows
//	info_val_N=VALUE
//	endcmd
//
// A value goes to the end of its line, without escapes. With gorun_quoted the arguments are quoted as in Go: a script
// has several lines. The reply is a spawn_result. gorun sends it when all processes
// have joined their job, or have failed to, with the reason as why=TEXT in base64url; hydra sends it at once.
//
// The new job has a key-value space of its own, which has the keys of the request from the beginning.
const (
	spawnCommand = "spawn"
	// EnvSpawned is 1 in the environment of a rank that another job has had started.
	EnvSpawned = "PMI_SPAWNED"
	infoDir    = "wdir"
	infoLimit  = "gorun_limit"
	infoQuoted = "gorun_quoted"
	maxSpawned = 1 << 16 // ranks
	noSpawn    = "gorun_does_not_spawn_processes_after_the_start"
)

// Spawn is what a rank asks its launcher to start.
type Spawn struct {
	Ranks   int
	Command string   // the executable; "": gorun takes the program of the rank that asks
	Args    []string // without the command
	Dir     string   // to run in; "": the launcher's
	Keys    []Pair   // in the new job's key-value space from the beginning
	// Limit is how long the processes may take to join their job; 0: gorun waits for them for ever.
	Limit time.Duration
}

// Keep adds a key to the new job's space, which Client.Get returns there.
func (q *Spawn) Keep(key string, value []byte) error {
	const limit = 512 // hydra and MPICH read a line into 1024 bytes
	parts, err := splitValue(value, limit)
	for i, text := range parts {
		q.Keys = append(q.Keys, Pair{partKey(key, i), text})
	}
	return err
}

// ErrNoSpawn is wrapped in the error of Client.Spawn where the launcher starts no processes later.
var ErrNoSpawn = errors.New("the launcher starts no ranks while the job runs")

// CanSpawn returns an error that wraps ErrNoSpawn if the launcher does not start other processes.
func (c *Client) CanSpawn() error {
	if c.launcher != Gorun && c.launcher != Hydra {
		return fmt.Errorf("%w (launcher: %s)", ErrNoSpawn, c.launcher)
	}
	return nil
}

// Spawn has the launcher start a job. Under gorun it returns when all of its processes have joined that, under hydra
// when they have been started.
func (c *Client) Spawn(ctx context.Context, q Spawn) error {
	if err := c.CanSpawn(); err != nil {
		return err
	}
	if c.leaving.Load() {
		return c.stepError(spawnCommand, ErrFinalized)
	}
	text, err := c.spawnText(q)
	if err != nil {
		return err
	}
	reply, err := c.requestText(ctx, replyName(spawnCommand), spawnCommand, text)
	if err != nil {
		return err
	}
	if codes, _ := reply.get("errcodes"); reply.rc() == 0 {
		if strings.Trim(codes, "0,") != "" {
			err = fmt.Errorf("the launcher could not start all processes (errcodes=%.80q)", codes)
		}
		return err
	}
	encoded, _ := reply.get("why")
	why, _ := b64.DecodeString(encoded)
	switch msg, _ := reply.get("msg"); {
	case msg == noSpawn && len(why) > 0:
		return fmt.Errorf("%w: %s", ErrNoSpawn, why)
	case msg == noSpawn:
		return ErrNoSpawn
	case len(why) > 0:
		return errors.New(string(why))
	}
	return c.refused(spawnCommand, reply)
}

// spawnText is the lines of the request.
func (c *Client) spawnText(q Spawn) ([]byte, error) {
	most := maxWrite
	if c.ours {
		most = maxRead
	}
	var b strings.Builder
	var bad error
	lines := 0
	say := func(key, value string) {
		if n := len(key) + len("=") + len(value) + len("\n"); bad == nil && n > most {
			bad = fmt.Errorf("%s has %d bytes: PMI-1 carries %d in a line", key, len(value), most-len(key)-2)
		}
		if bad == nil && !printable(value) {
			bad = fmt.Errorf("%s=%.80q has a control character, which PMI-1 cannot carry", key, value)
		}
		fmt.Fprintf(&b, "%s=%s\n", key, value)
		lines++
	}
	say("mcmd", spawnCommand)
	say("nprocs", strconv.Itoa(q.Ranks))
	say("execname", q.Command)
	say("totspawns", "1")
	say("spawnssofar", "1")
	for i, a := range q.Args {
		if c.ours {
			a = strconv.Quote(a)
		}
		say("arg"+strconv.Itoa(i+1), a)
	}
	say("argcnt", strconv.Itoa(len(q.Args)))
	sayPairs(say, "preput", q.Keys)
	var info []Pair
	if q.Dir != "" {
		info = append(info, Pair{infoDir, q.Dir})
	}
	if c.ours {
		info = append(info, Pair{infoQuoted, "1"})
	}
	if c.ours && q.Limit > 0 {
		info = append(info, Pair{infoLimit, strconv.FormatInt(q.Limit.Milliseconds(), 10)})
	}
	sayPairs(say, "info", info)
	if bad == nil && lines > maxSpawn {
		bad = fmt.Errorf("%d arguments are too many: the request has %d lines, and gorun takes %d", len(q.Args), lines,
			maxSpawn)
	}
	b.WriteString(endSpawn + "\n")
	return []byte(b.String()), bad
}

const endSpawn = "endcmd"

func sayPairs(say func(key, value string), name string, pairs []Pair) {
	say(name+"_num", strconv.Itoa(len(pairs)))
	for i, p := range pairs {
		say(fmt.Sprintf("%s_key_%d", name, i), p.Key)
		say(fmt.Sprintf("%s_val_%d", name, i), p.Value)
	}
}

// spawn reads the lines of an mcmd up to its end, and has the launcher do what they say. The answer may come much
// later: the rank is heard meanwhile.
func (c *serverConn) spawn(l line) error {
	text, err := c.spawnLines(l.cmd)
	if err != nil {
		return err
	}
	name := replyName(l.cmd)
	switch start := c.s.opts.Spawn; {
	case !c.initSeen:
		return c.answer(errorReply(name, "init_must_come_first"))
	case c.finalized:
		return &protocolError{errors.New("a spawn after finalize")}
	case l.cmd != spawnCommand:
		return c.answer(errorReply(name, "unknown_command"))
	case start == nil && c.s.opts.Above == nil:
		return c.answer(errorReply(name, noSpawn))
	case start == nil:
		c.s.handUpSpawn(c.rank, text, func(l line) { c.outbox <- l.bytes() })
	default:
		q, bad := spawnOf(text)
		if bad != "" {
			return c.answer(errorReply(name, bad))
		}
		var once sync.Once
		start(c.rank, q, func(err error) { once.Do(func() { c.outbox <- spawnReply(name, err).bytes() }) })
	}
	return nil
}

// A server that does not start processes hands the lines of a spawn up, in one:
//
//	cmd=spawn rank=N request=LINES       in base64url, without the first and the last
//
// The reply is the spawn_result that the rank gets.

// maxRequest is how long that line may be: a frame between hosts has 64 KiB.
const maxRequest = 60 << 10

// handUpSpawn has the server above answer.
func (s *Server) handUpSpawn(rank int, text []byte, then func(line)) {
	up := newLine(spawnCommand, "rank", strconv.Itoa(rank), "request", b64.EncodeToString(text)).bytes()
	if len(up) > maxRequest {
		then(spawnReply(replyName(spawnCommand), fmt.Errorf("the arguments are too long (%d bytes)", len(text))))
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.passUp(up, then)
}

// passUp asks the server above what no other rank asks as well. mu is held.
func (s *Server) passUp(text []byte, then func(line)) {
	if s.closed {
		then(errorReply(replyName(spawnCommand), "the_launcher_is_gone"))
		return
	}
	s.send(asked{text: string(text), q: &question{done: make(chan struct{}), then: []func(line){then}}}, nil)
}

// spawnBelow deals with a spawn that a server below has handed up. mu is held.
func (s *Server) spawnBelow(l line, answered func(line)) {
	name := replyName(spawnCommand)
	if s.opts.Above != nil {
		s.passUp(l.bytes(), answered)
		return
	}
	encoded, _ := l.get("request")
	text, err := b64.DecodeString(encoded)
	q, bad := spawnOf(text)
	rank, err2 := l.number("rank")
	switch {
	case err != nil || err2 != nil || rank < 0 || rank >= s.size:
		answered(errorReply(name, "the_request_makes_no_sense"))
	case bad != "":
		answered(errorReply(name, bad))
	case s.opts.Spawn == nil:
		answered(errorReply(name, noSpawn))
	default:
		var once sync.Once
		go s.opts.Spawn(rank, q, func(err error) { // the launcher may be waiting for mu
			once.Do(func() {
				s.mu.Lock()
				defer s.mu.Unlock()
				answered(spawnReply(name, err))
			})
		})
	}
}

// spawnReply is at most maxWrite bytes long.
func spawnReply(name string, err error) line {
	if err == nil {
		return newLine(name, "rc", "0")
	}
	l, why := errorReply(name, "the_processes_could_not_be_started"), err.Error()
	if errors.Is(err, ErrNoSpawn) {
		l, why = errorReply(name, noSpawn), strings.TrimPrefix(why, ErrNoSpawn.Error()+": ")
	}
	l.fields = append(l.fields, field{"why", b64.EncodeToString([]byte(truncate(why, MaxMessage)))})
	return l
}

// spawnLines returns the lines of an mcmd, without the first and the last.
func (c *serverConn) spawnLines(cmd string) (text []byte, err error) {
	for range maxSpawn {
		b, err := c.in.next()
		if err == errLineTooLong {
			return nil, &protocolError{err}
		}
		if err != nil {
			return nil, err
		}
		if string(b) == endSpawn {
			return text, nil
		}
		text = append(append(text, b...), '\n')
	}
	return nil, &protocolError{fmt.Errorf("mcmd=%.40s has more than %d lines", cmd, maxSpawn)}
}

// spawnOf makes a request of lines that a process has sent. bad says what is wrong with them.
func spawnOf(text []byte) (q Spawn, bad string) {
	values := map[string]string{}
	for l := range strings.SplitSeq(string(text), "\n") {
		if key, value, ok := strings.Cut(l, "="); ok {
			values[key] = value
		}
	}
	number := func(key string, low, high int) int {
		v, said := values[key]
		if !said && low == 0 {
			return 0
		}
		n, err := strconv.Atoi(v)
		if err != nil || n < low || n > high {
			bad = key + "_is_missing_or_wrong"
			return low
		}
		return n
	}
	value := func(format string, args ...any) string {
		key := fmt.Sprintf(format, args...)
		v, ok := values[key]
		if !ok || !printable(v) {
			bad = key + "_is_missing_or_wrong"
		}
		return v
	}
	q.Ranks, q.Command = number("nprocs", 1, maxSpawned), value("execname")
	if number("totspawns", 1, maxSpawned) != 1 {
		return q, "gorun_starts_one_program_in_a_spawn"
	}
	for i := range number("argcnt", 0, maxSpawn) {
		q.Args = append(q.Args, value("arg%d", i+1))
	}
	for i := range number("preput_num", 0, maxSpawn) {
		p := Pair{value("preput_key_%d", i), value("preput_val_%d", i)}
		if p.Key == "" || len(p.Key) > keyMax || len(p.Value) > valMax {
			return q, "a_key_or_value_is_too_long"
		}
		q.Keys = append(q.Keys, p)
	}
	for i := range number("info_num", 0, maxSpawn) {
		switch v := value("info_val_%d", i); value("info_key_%d", i) {
		case infoDir:
			q.Dir = v
		case infoQuoted:
			for i, a := range q.Args {
				var err error
				if q.Args[i], err = strconv.Unquote(a); err != nil {
					return q, fmt.Sprintf("arg%d_is_not_quoted", i+1)
				}
			}
		case infoLimit:
			ms, err := strconv.ParseInt(v, 10, 64)
			if err != nil || ms < 0 || ms > int64(24*time.Hour/time.Millisecond) {
				return q, infoLimit + "_is_wrong"
			}
			q.Limit = time.Duration(ms) * time.Millisecond
		}
	}
	return q, bad
}
