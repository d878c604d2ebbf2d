package pmi

import (
	"context"
	"errors"
	"fmt"
	"slices"
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
//	info_key_N=KEY            wdir; gorun_limit, gorun_quoted, gorun_meet and gorun_dead, which only gorun knows
//	info_val_N=VALUE
//	endcmd
//
// A value goes to the end of its line, without escapes. With gorun_quoted the arguments are quoted as in Go: a script
// has several lines. The reply is a spawn_result. gorun sends it when all processes have joined their job, or have
// failed to, with the reason as why=TEXT in base64url; hydra sends it at once. A rank of ours makes other requests
// meanwhile, whose replies come first. With gorun_meet there are two results. The first has more=1, if it is no error:
// all ranks are in Init. They meet the ranks that have asked, enter a second barrier, and when they have left that, or
// one has failed, the other result comes.
//
// The new job has a key-value space of its own, which has the keys of the request from the beginning.
const (
	spawnCommand = "spawn"
	// EnvSpawned is 1 in the environment of a rank that another job has had started.
	EnvSpawned = "PMI_SPAWNED"
	infoDir    = "wdir"
	infoLimit  = "gorun_limit"
	infoQuoted = "gorun_quoted"
	infoMeet   = "gorun_meet"
	infoDead   = "gorun_dead"
	noSpawn    = "gorun_does_not_spawn_processes_after_the_start"
	// MaxSpawned is how many ranks a spawn has at most.
	MaxSpawned = 1 << 16
)

// Spawn is what a rank asks its launcher to start.
type Spawn struct {
	Ranks   int
	Command string   // the executable; "": gorun takes the program of the rank that asks
	Args    []string // without the command
	Dir     string   // to run in; "": the launcher's
	Keys    []Pair   // in the new job's key-value space from the beginning
	// Limit is how long the processes may take to join their job, from the request on, and as long to meet; 0: gorun
	// waits for them for ever.
	Limit time.Duration
	Meet  bool // the ranks are of this library: they meet those that ask, and enter a second barrier
	// Dead are the ranks whose places the processes take, in their order, as numbered in the world of the rank that
	// asks; if that has itself taken a place, in the world of that place. gorun starts each process on the host of the
	// dead rank. nil: not known, or of no place.
	Dead []int
}

// Joins is how many barriers the start of the job has.
func (q *Spawn) Joins() int {
	if q.Meet {
		return 2
	}
	return 1
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
var ErrNoSpawn = errors.New("the launcher starts no more ranks")

// CanSpawn returns an error that wraps ErrNoSpawn if the launcher does not start other processes.
func (c *Client) CanSpawn() error {
	if c.launcher != Gorun && c.launcher != Hydra {
		return fmt.Errorf("%w (launcher: %s)", ErrNoSpawn, c.launcher)
	}
	return nil
}

// Spawn has the launcher start a job. Under gorun it returns when all of its processes have joined that, under hydra
// when they have been started. With Meet, met returns when they have met this rank: until then gorun kills all if one
// fails. Other launchers say nothing of that.
func (c *Client) Spawn(ctx context.Context, q Spawn) (met func(context.Context) error, err error) {
	if err := c.CanSpawn(); err != nil {
		return nil, err
	}
	if c.leaving.Load() {
		return nil, c.stepError(spawnCommand, ErrFinalized)
	}
	text, err := c.spawnText(q)
	if err != nil {
		return nil, err
	}
	nothing := func(context.Context) error { return nil }
	if !c.ours {
		reply, err := c.requestText(ctx, replyName(spawnCommand), spawnCommand, text)
		if err == nil {
			err = c.spawnError(reply)
		}
		return nothing, err
	}
	results, err := c.spawnLater(ctx, text)
	if err != nil {
		return nil, err
	}
	next := func(ctx context.Context) error {
		l, err := c.result(ctx, results)
		if err == nil {
			err = c.spawnError(l)
		}
		return err
	}
	if err = next(ctx); err != nil || !q.Meet {
		return nothing, err
	}
	return next, nil
}

// spawnError is what a result says; nil: nothing is wrong.
func (c *Client) spawnError(reply line) (err error) {
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

// underWay is the spawn of a rank of ours that is under way: its results come when they are there, and other requests
// go on meanwhile.
type underWay struct {
	turn chan struct{} // has room for one; full from the request on until its last result has come
	mu   sync.Mutex
	to   chan line // guarded by mu; has room for both results; nil: none is due
}

// begin is called by the holder of the turn.
func (w *underWay) begin() <-chan line {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.to = make(chan line, 2)
	return w.to
}

// heard takes a result. The last one gives the turn back. It reports whether one was due.
func (w *underWay) heard(l line) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.to == nil || len(w.to) == cap(w.to) {
		return false
	}
	w.to <- l
	if !more(l) {
		w.to = nil
		<-w.turn
	}
	return true
}

// more reports whether another result follows.
func more(result line) bool {
	v, _ := result.get("more")
	return v == "1"
}

// spawnLater makes a request whose results do not keep to the order of the replies.
func (c *Client) spawnLater(ctx context.Context, text []byte) (results <-chan line, err error) {
	select {
	case c.spawns.turn <- struct{}{}:
	case <-c.dead:
		return nil, c.stepError(spawnCommand, c.deadErr)
	case <-ctx.Done():
		return nil, c.stepError(spawnCommand, context.Cause(ctx))
	}
	results = c.spawns.begin()
	if err := c.send(ctx, text); err != nil {
		c.spawns.heard(line{}) // nothing was sent, or nothing comes any more
		return nil, c.stepError(spawnCommand, err)
	}
	return results, nil
}

// result waits for the next one.
func (c *Client) result(ctx context.Context, results <-chan line) (line, error) {
	err := error(nil)
	select {
	case l := <-results:
		return l, nil
	case <-c.dead:
		select { // the last line may have come together with the end
		case l := <-results:
			return l, nil
		default:
		}
		err = c.deadErr
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	return line{}, c.stepError(spawnCommand, err)
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
			bad = fmt.Errorf("%s has %d bytes, and PMI-1 carries %d: "+passOtherwise,
				strings.Replace(key, "arg", "argument ", 1), len(value), most-len(key)-2)
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
	if c.ours && q.Meet {
		info = append(info, Pair{infoMeet, "1"})
	}
	if c.ours && q.Limit > 0 {
		info = append(info, Pair{infoLimit, strconv.FormatInt(q.Limit.Milliseconds(), 10)})
	}
	if text := FormatRanks(q.Dead, maxDead); c.ours && text != "" {
		info = append(info, Pair{infoDead, text})
	}
	sayPairs(say, "info", info)
	if bad == nil && lines > maxSpawn {
		bad = fmt.Errorf("%d arguments are too many: the request has %d lines, and gorun takes %d; "+passOtherwise,
			len(q.Args), lines, maxSpawn)
	}
	b.WriteString(endSpawn + "\n")
	return []byte(b.String()), bad
}

const (
	endSpawn      = "endcmd"
	passOtherwise = "pass long data by a file, or by a message after Spawn"
)

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
	switch {
	case !c.initSeen:
		return c.answer(errorReply(name, "init_must_come_first"))
	case c.finalized:
		return &protocolError{errors.New("a spawn after finalize")}
	case l.cmd != spawnCommand:
		return c.answer(errorReply(name, "unknown_command"))
	}
	places := 1
	if c.greeted {
		c.owed <- struct{}{} // for another result
		places++
	}
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	c.s.spawnFor(c.rank, text, func(l line) {
		if places == 0 { // a rank that has not greeted gets one result, whatever it asks for
			return
		}
		if places--; !more(l) && places > 0 {
			<-c.owed
		}
		l.fields = slices.DeleteFunc(slices.Clone(l.fields), func(f field) bool { return f.key == "rank" })
		c.outbox <- l.bytes()
	})
	return nil
}

// A server that does not start processes hands the lines of a spawn up, in one:
//
//	cmd=spawn rank=N request=LINES       in base64url, without the first and the last
//
// The spawn_result comes down with a field rank=N. It does not keep to the order of the other answers, which would wait
// for it.

// maxRequest is how long that line may be: a frame between hosts has 64 KiB.
const maxRequest = 60 << 10

// spawnFor has a job started for a rank, here or by the server above. told is called with the results. A rank has one
// spawn at a time. mu is held, also when told is called.
func (s *Server) spawnFor(rank int, text []byte, told func(line)) {
	var q Spawn
	bad := ""
	if s.opts.Above == nil {
		q, bad = spawnOf(text)
	}
	up := newLine(spawnCommand, "rank", strconv.Itoa(rank), "request", b64.EncodeToString(text)).bytes()
	switch {
	case s.closed:
		bad = "the_launcher_is_gone"
	case s.spawning[rank] != nil:
		bad = "another_spawn_of_this_rank_is_under_way"
	case s.opts.Above == nil && s.opts.Spawn == nil:
		bad = noSpawn
	case s.opts.Above != nil && len(up) > maxRequest:
		told(spawnResult(rank, fmt.Errorf("the arguments are too long: they have about %d bytes, and from a host with an "+
			"agent gorun takes %d; "+passOtherwise, len(text), maxRequest*3/4), false))
		return
	}
	if bad != "" {
		told(refusal(rank, bad, ""))
		return
	}
	s.spawning[rank] = told
	if s.opts.Above != nil {
		s.opts.Above.Ask(up)
		return
	}
	left := q.Joins()
	go s.opts.Spawn(rank, q, func(err error) { // the launcher may be waiting for mu
		s.mu.Lock()
		defer s.mu.Unlock()
		if left == 0 {
			return
		}
		if left--; err != nil {
			left = 0
		}
		s.spawned(spawnResult(rank, err, left > 0))
	})
}

// spawned passes on what has come of a spawn. mu is held.
func (s *Server) spawned(l line) error {
	rank, err := l.number("rank")
	told := s.spawning[rank]
	if err != nil || told == nil {
		return errors.New("the result of no spawn")
	}
	if !more(l) {
		delete(s.spawning, rank)
	}
	told(l)
	return nil
}

// spawn deals with a spawn that the server below has handed up.
func (b *Below) spawn(l line) error {
	rank, err := l.number("rank")
	encoded, _ := l.get("request")
	text, err2 := b64.DecodeString(encoded)
	if err != nil || err2 != nil || rank < 0 || rank >= b.s.size {
		return errors.New("a spawn that makes no sense")
	}
	b.s.mu.Lock()
	defer b.s.mu.Unlock()
	b.s.spawnFor(rank, text, func(l line) { b.down.Answer([]byte(l.String())) })
	return nil
}

// spawnResult says what has come of a spawn; follows: it is not the last word.
func spawnResult(rank int, err error, follows bool) line {
	switch {
	case errors.Is(err, ErrNoSpawn):
		return refusal(rank, noSpawn, strings.TrimPrefix(err.Error(), ErrNoSpawn.Error()+": "))
	case err != nil:
		return refusal(rank, "the_processes_could_not_be_started", err.Error())
	}
	l := newLine(replyName(spawnCommand), "rc", "0", "rank", strconv.Itoa(rank))
	if follows {
		l.fields = append(l.fields, field{"more", "1"})
	}
	return l
}

// refusal is the result of a spawn that has failed. It is at most maxWrite bytes long.
func refusal(rank int, msg, why string) line {
	l := errorReply(replyName(spawnCommand), msg)
	if why != "" {
		l.fields = append(l.fields, field{"why", b64.EncodeToString([]byte(truncate(why, MaxMessage)))})
	}
	l.fields = append(l.fields, field{"rank", strconv.Itoa(rank)})
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
	q.Ranks, q.Command = number("nprocs", 1, MaxSpawned), value("execname")
	if number("totspawns", 1, MaxSpawned) != 1 {
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
		case infoMeet:
			q.Meet = true
		case infoLimit:
			ms, err := strconv.ParseInt(v, 10, 64)
			if err != nil || ms < 0 || ms > int64(24*time.Hour/time.Millisecond) {
				return q, infoLimit + "_is_wrong"
			}
			q.Limit = time.Duration(ms) * time.Millisecond
		case infoDead:
			var ok bool
			if q.Dead, ok = ParseRanks(v, q.Ranks); !ok {
				return q, infoDead + "_is_wrong"
			}
		}
	}
	return q, bad
}
