package report

import (
	"math"
	"math/bits"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

// Call is a call that is over.
type Call struct {
	Op, Kind   string
	Begin, End int64 // of Recorder.Ticks
	Context    uint32
	Peer       int // in the world; negative: none
	Bytes      int64
	Collective bool // all ranks of the communicator make it, in one order
	First      int  // of a collective call: the communicator's first rank, in the world
}

// Way is the direction of a message, or of an operation on a window.
type Way uint8

// The ways.
const (
	Sent Way = iota
	Received
	Written // by this rank into another one's window
	Read    // from there
)

// Message is a message that a call has sent or received.
type Message struct {
	Way     Way
	Peer    int // in the world
	Tag     int
	Context uint32
	Bytes   int64
}

// Site is a line of the program, with the sums of all calls that it has made.
type Site struct {
	Op, Kind, Func, File string
	Line                 int
	Calls, Bytes         int64
	Time, Longest        int64 // nanoseconds
}

// Event is a call on the timeline.
type Event struct {
	Site       int32
	Peer       int32 // negative: none
	Begin, End int64
	Bytes      int64
	Context    uint32
	Collective bool
	First      int32 // communicators that have no rank in common may have one context
}

// Transfer is a message on the timeline. Its event has sent it, or has returned when it was received.
type Transfer struct {
	Message
	Event int32
}

// Part is what a rank has recorded.
type Part struct {
	Rank, Size    int
	Host          string
	Begin, End    int64 // of the rank's clock
	Offset, Drift int64 // what makes Begin, and what makes End, a time of rank 0's clock
	Calls         int64
	InCalls       int64 // nanoseconds in calls; calls of two goroutines at one time count twice
	Sites         []Site
	Events        []Event
	Transfers     []Transfer
	Unkept        int64 // calls that have not fitted on the timeline
	Out, In       []Flow
	Sizes         [65]int64 // messages sent, by the bits of their length
	CPU, Memory   int64
	Transport     string
	Program       string
	Started       int64 // nanoseconds since 1970
	Algorithms    []Algorithm
}

// Algorithm is how a rank has made collective calls with blocks of Least to Most bytes.
type Algorithm struct {
	Op, Names   string
	Least, Most int64
}

// Flow is what a rank has moved to or from another one.
type Flow struct {
	Peer            int
	Messages, Bytes int64
	Via             string // the transport; "": unknown
}

func (f *Flow) add(bytes int64) {
	f.Messages++
	f.Bytes += bytes
}

// sum adds what another recorder has counted.
func (f *Flow) sum(o Flow) {
	f.Messages += o.Messages
	f.Bytes += o.Bytes
}

// Limits of the timeline: of one rank, and of all ranks together, since rank 0 gets it.
const (
	entryBytes   = 48
	memoryBound  = 64 << 20
	mostOfRank   = memoryBound / 2 / 3 / entryBytes // two recorders; a call has up to two messages of its own
	mostTogether = 1 << 19
	leastOfRank  = 256
)

// callersDeep is how many return addresses name a line of the program. A call of the library is at most this many
// functions of the library deep.
const callersDeep = 11

// lines are the lines of the program that have called the library lately: the first return address of a call that is
// not the library's, by its slot. A chain that ends with one needs no further address. A line that also calls functions
// of the program, by a function value, may end the chains of these: below tells them apart.
type lines struct {
	pcs  [linesKnown]uintptr
	more [linesKnown]struct {
		below uintptr // the address before it in the chain, which is the library's; 0: it is the first
		op    string
		at    int32 // in Part.Sites
	}
}

const linesKnown = 1 << 9

// slot is where lines have a return address.
func slot(pc uintptr) int { return int(uint64(pc) * 0x9E3779B97F4A7C15 >> 55) }

// siteKey is a return address in the program, and the operation.
type siteKey struct {
	pc uintptr
	op string
}

// entry is a call on the timeline, with one of its messages, or another message of a call. Times are ticks.
type entry struct {
	begin, end   int64
	bytes        int64
	context      uint32
	peer, tag    int32
	of           int32 // a call: its site; a message of its own: the event of its call
	way          Way   // of the message
	call, moves  bool  // whether it has a call, and a message
	isCollective bool
	first        int32
}

// entriesEach is how many entries are allocated at a time: growing a slice would copy them again and again.
const entriesEach = 1 << 10

// Recorder records calls of one rank. One goroutine uses it at a time.
type Recorder struct {
	watch
	twin *Recorder // nil: none
	room int       // for calls on the timeline; twice as many for messages
	full int64     // in ticks: the end of the first call that has found no room

	sites   map[siteKey]int32
	library map[uintptr]bool // return addresses that are the library's
	byLine  map[Site]int32   // by what does not change
	lines   lines
	chain   [callersDeep]uintptr // of a call's return addresses
	part    Part                 // of its Sites, times are ticks
	out, in []Flow               // by peer

	log          []*[entriesEach]entry
	last         *[entriesEach]entry // of log
	used         int                 // entries of last
	calls, moved int                 // on the timeline
}

// watch gives the times of a rank's calls.
type watch struct {
	base  time.Time
	clock int64 // of the host, at base
	ticks bool  // the processor's counter gives the times of calls
	began pair  // of ticks and clock, at the begin
}

// pair is one moment in ticks and on the clock of the host.
type pair struct{ ticks, clock int64 }

// New returns the recorder of a rank.
func New(rank, size int, transport string) *Recorder {
	return newRecorder(rank, size, transport, hasTicks())
}

// newRecorder is New by the processor's counter or without it.
func newRecorder(rank, size int, transport string, ticks bool) *Recorder {
	host, _ := os.Hostname()
	w := watch{base: time.Now(), clock: hostClock(), ticks: ticks}
	w.began = w.moment()
	r := w.recorder(size)
	r.part = Part{Rank: rank, Size: size, Host: host, Transport: transport, Program: filepath.Base(os.Args[0]),
		Started: time.Now().UnixNano(), Begin: r.began.clock}
	return r
}

// recorder returns a recorder that has recorded nothing.
func (w watch) recorder(size int) *Recorder {
	return &Recorder{watch: w, sites: map[siteKey]int32{}, library: map[uintptr]bool{}, byLine: map[Site]int32{},
		out: make([]Flow, size), in: make([]Flow, size), room: roomOf(size), full: math.MaxInt64, used: entriesEach}
}

// Twin returns a recorder that another goroutine may use at the same time. What it records is in the Part of r.
func (r *Recorder) Twin() *Recorder {
	if r.twin == nil {
		r.twin = r.watch.recorder(len(r.out))
	}
	return r.twin
}

// roomOf is how many calls of a rank of a job of size ranks the timeline has.
func roomOf(size int) int { return min(mostOfRank, max(leastOfRank, mostTogether/max(1, size))) }

// Rank returns the rank.
func (r *Recorder) Rank() int { return r.part.Rank }

// Now returns the time on the clock of the host, in nanoseconds.
func (w *watch) Now() int64 { return w.clock + int64(time.Since(w.base)) }

// Ticks returns the time of a Call. Part makes nanoseconds of it: a second look at the clock, at the end, says how long
// a tick is.
func (w *watch) Ticks() int64 {
	if w.ticks {
		return cpuTicks()
	}
	return w.Now()
}

// moment returns the time in ticks and on the clock. The shortest of some tries is the most exact one: a thread may
// lose its processor between the two.
func (w *watch) moment() (best pair) {
	if !w.ticks {
		now := w.Now()
		return pair{now, now}
	}
	shortest := int64(math.MaxInt64)
	for range 5 {
		before := w.Ticks()
		clock := w.Now()
		after := w.Ticks()
		if took := after - before; took < shortest {
			shortest, best = took, pair{before + took/2, clock}
		}
	}
	return best
}

// Record records a call, and the messages that it has sent or received.
func (r *Recorder) Record(c *Call, messages []Message) {
	n := callers(&r.chain, &r.lines.pcs)
	pc, below := r.chain[n-1], uintptr(0)
	if n > 1 {
		below = r.chain[n-2]
	}
	near := slot(pc)
	line := &r.lines.more[near]
	at := line.at
	if r.lines.pcs[near] != pc || line.below != below || line.op != c.Op {
		at = r.find(r.chain[:n], c)
	}
	s := &r.part.Sites[at]
	took := max(0, c.End-c.Begin)
	s.Calls++
	s.Bytes += c.Bytes
	s.Time += took
	s.Longest = max(s.Longest, took)
	event := int32(-1)
	var e *entry
	if r.calls < r.room {
		event = int32(r.calls)
		r.calls++
		// Field by field: Go makes a literal on the stack, in words, and copies it in pairs of words, for which the
		// processor has to wait until the words are in the cache.
		e = r.next()
		e.begin, e.end, e.bytes = c.Begin, c.Begin+took, c.Bytes
		e.context, e.peer, e.of, e.first = c.Context, int32(c.Peer), at, int32(c.First)
		e.call, e.isCollective = true, c.Collective
	} else {
		r.part.Unkept++
		r.full = min(r.full, c.End)
	}
	for i := range messages {
		r.message(&messages[i], event, e)
	}
}

// next returns a new entry, all of which is zero.
func (r *Recorder) next() *entry {
	if r.used == entriesEach {
		r.last, r.used = new([entriesEach]entry), 0
		r.log = append(r.log, r.last)
	}
	r.used++
	return &r.last[r.used-1]
}

// message counts a message. event is -1 if its call is not on the timeline; else e is the call's entry.
func (r *Recorder) message(m *Message, event int32, e *entry) {
	if m.Peer < 0 || m.Peer >= len(r.out) {
		return
	}
	switch m.Way { // the sender counts a message
	case Sent, Written:
		r.part.Sizes[bits.Len64(uint64(m.Bytes))]++
		r.out[m.Peer].add(m.Bytes)
	case Read:
		r.in[m.Peer].add(m.Bytes)
	}
	if event < 0 || m.Way != Sent && m.Way != Received {
		return
	}
	if r.moved >= 2*r.room { // the timeline ends before this call
		r.room, r.full = r.calls, min(r.full, e.end-1)
		return
	}
	r.moved++
	if e.moves || e.peer != int32(m.Peer) || e.bytes != m.Bytes || e.context != m.Context {
		e = r.next()
		e.bytes, e.context, e.peer, e.of = m.Bytes, m.Context, int32(m.Peer), event
	}
	e.moves, e.way, e.tag = true, m.Way, int32(m.Tag)
}

// find returns the site of a call whose line is not known by the end of its chain.
func (r *Recorder) find(pcs []uintptr, c *Call) int32 {
	below := uintptr(0)
	var last runtime.Frame
	for _, pc := range pcs {
		if !r.library[pc] {
			key := siteKey{pc, c.Op}
			at, found := r.sites[key]
			if !found {
				f, ours := frameAt(pc)
				if ours {
					r.library[pc] = true
					below, last = pc, f
					continue
				}
				at = r.add(f, c)
				r.sites[key] = at
			}
			i := slot(pc)
			line := &r.lines.more[i]
			line.below, line.op, line.at = below, c.Op, at
			r.lines.pcs[i] = pc
			return at
		}
		below = pc
	}
	if last.PC == 0 {
		last, _ = frameAt(below)
	}
	return r.add(last, c) // the library is deeper than callersDeep
}

// frameAt returns the innermost function of the program at a return address; ours: only the library has functions
// there, of which it returns one.
func frameAt(pc uintptr) (f runtime.Frame, ours bool) {
	frames := runtime.CallersFrames([]uintptr{pc, 0}) // with a 0 behind it, also functions that pc's is inlined in
	for more := true; more; {
		if f, more = frames.Next(); !ofLibrary(f.Function, f.File) {
			return f, false
		}
	}
	return f, true
}

// add returns the site of calls at a line of the program.
func (r *Recorder) add(f runtime.Frame, c *Call) int32 {
	return r.site(Site{Op: c.Op, Kind: c.Kind, Func: f.Function, File: f.File, Line: f.Line})
}

// site returns the site that is s but for the sums, which s has not.
func (r *Recorder) site(s Site) int32 {
	at, known := r.byLine[s]
	if !known {
		at = int32(len(r.part.Sites))
		r.part.Sites = append(r.part.Sites, s)
		r.byLine[s] = at
	}
	return at
}

const module = "github.com/gorun-mpi/mpi"

// ofLibrary reports whether a function is one of the packages mpi and gpu. Their tests are programs.
func ofLibrary(function, file string) bool {
	rest, ours := strings.CutPrefix(function, module)
	return ours && (strings.HasPrefix(rest, ".") || strings.HasPrefix(rest, "/gpu.") ||
		strings.HasPrefix(rest, "/internal/report.")) && !strings.HasSuffix(file, "_test.go")
}

// SetOffsets says what makes the times of this rank's clock times of rank 0's: at the begin and at the end.
func (r *Recorder) SetOffsets(begin, end int64) {
	r.part.Offset, r.part.Drift = begin, end
}

// Part returns what r and its twin have recorded until now. They must not be used any more.
func (r *Recorder) Part() *Part {
	p := &r.part
	each := r.each(r.moment())
	long := func(ticks int64) int64 { return int64(float64(ticks) * each) }
	if each == 1 {
		long = func(ticks int64) int64 { return ticks } // exact, also where they are more than 53 bits
	}
	at := func(ticks int64) int64 { return p.Begin + long(ticks-r.began.ticks) }
	var others []*entry
	if r.twin != nil {
		r.join(r.twin)
		others = r.twin.entries()
	}
	p.End = max(p.Begin, at(r.Ticks()))
	p.CPU, p.Memory = usage()
	p.Out, p.In = flows(r.out), flows(r.in)
	for i := range p.Sites {
		s := &p.Sites[i]
		s.Time, s.Longest = long(s.Time), long(s.Longest)
		p.Calls += s.Calls
		p.InCalls += s.Time
	}
	r.timeline(r.entries(), others, at)
	return p
}

// join adds the sums of o, and gives its entries the sites of r.
func (r *Recorder) join(o *Recorder) {
	sites := make([]int32, len(o.part.Sites))
	for i, s := range o.part.Sites {
		sites[i] = r.site(Site{Op: s.Op, Kind: s.Kind, Func: s.Func, File: s.File, Line: s.Line})
		sum := &r.part.Sites[sites[i]]
		sum.Calls, sum.Bytes = sum.Calls+s.Calls, sum.Bytes+s.Bytes
		sum.Time, sum.Longest = sum.Time+s.Time, max(sum.Longest, s.Longest)
	}
	for peer := range o.out {
		r.out[peer].sum(o.out[peer])
		r.in[peer].sum(o.in[peer])
	}
	for i, n := range o.part.Sizes {
		r.part.Sizes[i] += n
	}
	r.part.Unkept += o.part.Unkept
	r.full = min(r.full, o.full)
	for _, e := range o.entries() {
		if e.call {
			e.of = sites[e.of]
		}
	}
}

// entries returns what r has on the timeline.
func (r *Recorder) entries() (all []*entry) {
	for i, some := range r.log {
		n := entriesEach
		if i == len(r.log)-1 {
			n = r.used
		}
		for at := range some[:n] {
			all = append(all, &some[at])
		}
	}
	return all
}

// timeline makes one timeline of two. The call that has ended first comes first, with its messages behind it. It ends
// where one of the two does: the ordinals of later messages and collective calls are unknown.
func (r *Recorder) timeline(a, b []*entry, at func(ticks int64) int64) {
	p, room := &r.part, roomOf(r.part.Size)
	p.Events, p.Transfers = make([]Event, 0, min(room, len(a)+len(b))), make([]Transfer, 0, min(2*room, len(a)+len(b)))
	for full := false; len(a)+len(b) > 0; {
		from := &a
		if len(a) == 0 || len(b) > 0 && b[0].end < a[0].end {
			from = &b
		}
		for first := true; len(*from) > 0 && (first || !(*from)[0].call); first = false {
			e := (*from)[0]
			*from = (*from)[1:]
			if first && (full || e.end > r.full || len(p.Events) == room) {
				full = true
				p.Unkept++
			}
			if full {
				continue
			}
			if e.call {
				p.Events = append(p.Events, Event{e.of, e.peer, at(e.begin), at(e.end), e.bytes, e.context, e.isCollective,
					e.first})
			}
			if e.moves && len(p.Transfers) < 2*room {
				m := Message{e.way, int(e.peer), int(e.tag), e.context, e.bytes}
				p.Transfers = append(p.Transfers, Transfer{m, int32(len(p.Events) - 1)})
			}
		}
	}
}

// each returns how many nanoseconds a tick is, by two moments: began and ended.
func (w *watch) each(ended pair) float64 {
	switch ticks := ended.ticks - w.began.ticks; {
	case !w.ticks:
		return 1
	case ticks <= 0: // a virtual machine has moved to another host
		return 0
	default:
		return max(0, float64(ended.clock-w.began.clock)/float64(ticks))
	}
}

func flows(all []Flow) (some []Flow) {
	for peer, f := range all {
		if f.Messages > 0 {
			f.Peer = peer
			some = append(some, f)
		}
	}
	return some
}
