package report

import (
	"math/bits"
	"os"
	"runtime"
	"strings"
	"sync"
	"time"
)

// Call is a call that is over.
type Call struct {
	Op, Kind   string
	Begin, End int64 // of Recorder.Now
	Context    uint32
	Peer       int // in the world; negative: none
	Bytes      int64
	Collective bool // all ranks of the communicator make it, in one order
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
}

// Flow is what a rank has moved to or from another one.
type Flow struct {
	Peer            int
	Messages, Bytes int64
}

func (f *Flow) add(bytes int64) {
	f.Messages++
	f.Bytes += bytes
}

// Limits of the timeline: of one rank, and of all ranks together, since rank 0 gets it.
const (
	eventBytes   = 48
	memoryBound  = 64 << 20
	mostOfRank   = memoryBound / 2 / eventBytes
	mostTogether = 1 << 19
	leastOfRank  = 256
)

// callersDeep is how many return addresses name a line of the program. A call of the library is at most this many
// functions of the library deep.
const callersDeep = 11

type siteKey struct {
	pcs [callersDeep]uintptr
	op  string
}

// recent is where the sites of recent calls are found, by their return addresses.
type recent [256]struct {
	key siteKey
	at  int32 // in Part.Sites, from 1
}

// place is the one place of a key.
func (k *siteKey) place() uint8 {
	var h uintptr
	for _, pc := range k.pcs {
		h = h*31 + pc
	}
	return uint8(h ^ h>>8 ^ h>>16)
}

// Recorder records the calls of one rank.
type Recorder struct {
	base  time.Time
	clock int64 // of the host, at base
	room  int   // for events, and for transfers

	mu      sync.Mutex
	sites   map[siteKey]int32
	byLine  map[Site]int32 // by what does not change
	recent  recent
	part    Part
	out, in []Flow // by peer
}

// New returns the recorder of a rank.
func New(rank, size int, transport string) *Recorder {
	host, _ := os.Hostname()
	r := &Recorder{base: time.Now(), clock: hostClock(), sites: map[siteKey]int32{}, byLine: map[Site]int32{},
		out: make([]Flow, size), in: make([]Flow, size),
		room: min(mostOfRank, max(leastOfRank, mostTogether/max(1, size)))}
	r.part = Part{Rank: rank, Size: size, Host: host, Transport: transport, Begin: r.Now()}
	return r
}

// Rank returns the rank.
func (r *Recorder) Rank() int { return r.part.Rank }

// Now returns the time on the clock of the host, in nanoseconds.
func (r *Recorder) Now() int64 { return r.clock + int64(time.Since(r.base)) }

// Record records a call, and the messages that it has sent or received.
func (r *Recorder) Record(c *Call, messages []Message) {
	key := siteKey{op: c.Op}
	callers(&key.pcs)
	r.mu.Lock()
	defer r.mu.Unlock()
	near := &r.recent[key.place()]
	at := near.at - 1
	if at < 0 || near.key != key {
		var known bool
		if at, known = r.sites[key]; !known {
			at = r.add(&key, c)
		}
		near.key, near.at = key, at+1
	}
	s := &r.part.Sites[at]
	took := c.End - c.Begin
	s.Calls++
	s.Bytes += c.Bytes
	s.Time += took
	s.Longest = max(s.Longest, took)
	r.part.Calls++
	r.part.InCalls += took
	event := int32(-1)
	if len(r.part.Events) < r.room && r.part.Unkept == 0 {
		event = int32(len(r.part.Events))
		r.part.Events = append(r.part.Events, Event{at, int32(c.Peer), c.Begin, c.End, c.Bytes, c.Context, c.Collective})
	} else {
		r.part.Unkept++
	}
	for _, m := range messages {
		r.message(m, event)
	}
}

// message counts a message. event is -1 if its call is not on the timeline.
func (r *Recorder) message(m Message, event int32) {
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
	if event >= 0 && (m.Way == Sent || m.Way == Received) && len(r.part.Transfers) < 2*r.room {
		r.part.Transfers = append(r.part.Transfers, Transfer{m, event})
	}
}

// add finds the line of the program that has made a call, and returns its site.
func (r *Recorder) add(key *siteKey, c *Call) int32 {
	s := Site{Op: c.Op, Kind: c.Kind}
	n := 0
	for n < len(key.pcs) && key.pcs[n] != 0 {
		n++
	}
	frames := runtime.CallersFrames(key.pcs[:n])
	for f, more := frames.Next(); n > 0; f, more = frames.Next() {
		s.Func, s.File, s.Line = f.Function, f.File, f.Line
		if !more || !ofLibrary(f.Function, f.File) {
			break
		}
	}
	at, known := r.byLine[s]
	if !known {
		at = int32(len(r.part.Sites))
		r.part.Sites = append(r.part.Sites, s)
		r.byLine[s] = at
	}
	r.sites[*key] = at
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
	r.mu.Lock()
	defer r.mu.Unlock()
	r.part.Offset, r.part.Drift = begin, end
}

// Part returns what has been recorded until now. The recorder must not be used any more.
func (r *Recorder) Part() *Part {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := &r.part
	p.End = r.Now()
	p.CPU, p.Memory = usage()
	p.Out, p.In = flows(r.out), flows(r.in)
	return p
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
