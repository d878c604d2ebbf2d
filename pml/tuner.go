package pml

import (
	"math/bits"
	"slices"
	"time"

	"github.com/gorun-mpi/mpi/rendezvous"
)

// tuner chooses among the schemes that work for a peer by what each of them has cost lately. Which is fastest depends
// on how far apart the two processors are, on what lies in whose cache and on how busy both are; on one and the same
// machine it was seen to change by the hour, so it is measured on the job's own messages rather than decided here.
//
// A transfer that is alone from match to end is measured by itself. One among others takes as long as all of them, so
// there a run of transfers is given one scheme, and the time from the end of its first to the end of its last counts:
// they end in the order in which they began.
type tuner struct {
	alone [2][tunedClasses]tuned // by the length in bits; [1]: the sender's memory is mapped here
	among [2][tunedClasses]crowd
}

const (
	tunedClasses = 40
	aloneTries   = 8  // of each scheme, one after the other, before one is preferred
	crowdTries   = 2  // runs
	crowdRun     = 32 // transfers
	// One that is not preferred is tried again after so many picks at first; each trial that changes nothing doubles it.
	firstRetry = 64
	lastRetry  = 4096
)

// tuned is what is known of one class of sizes.
type tuned struct {
	cost  [rendezvous.Schemes]float32 // ns per byte, see learn
	tried [rendezvous.Schemes]uint8
	// A trial is as many picks in a row as at the beginning: a scheme's first transfer finds the lines where the other
	// scheme has left them, and says little about the next.
	trial    rendezvous.Scheme
	trials   uint8  // still to come
	turn     uint32 // which scheme's turn it is
	retry    uint32 // picks between two trials; 0: not set yet
	untilTry uint32
	before   rendezvous.Scheme // preferred when the last trial began
	// back is the part of a split message that the sender writes, in 1/256; 0: not chosen yet. It moves towards where
	// both are done at the same time.
	back int16
}

// crowd is the latest run of transfers with one scheme.
type crowd struct {
	tuned
	scheme rendezvous.Scheme
	left   int // transfers of the run still to begin
	open   int // begun and not ended
	votes  int // transfers where the sender was done first, less those where it was not
	bytes  int64
	since  time.Time // the end of the first; zero before
}

func class(size int64, mapped bool) (m, c int) {
	if mapped {
		m = 1
	}
	return m, min(bits.Len64(uint64(size)), tunedClasses-1)
}

// pick returns the scheme for the next transfer or run; able has at least one.
func (c *tuned) pick(able []rendezvous.Scheme, tries uint8) rendezvous.Scheme {
	for _, s := range able {
		if c.tried[s] < tries {
			c.tried[s]++
			return s
		}
	}
	if c.trials > 0 && slices.Contains(able, c.trial) {
		c.trials--
		return c.trial
	}
	best := c.cheapest(able)
	if c.retry == 0 {
		c.retry, c.untilTry, c.before = firstRetry, firstRetry, best
	}
	if c.untilTry--; c.untilTry > 0 {
		return best
	}
	if c.retry = min(2*c.retry, lastRetry); best != c.before {
		c.retry = firstRetry
	}
	c.untilTry, c.before = c.retry, best
	c.turn++
	if c.trial = able[int(c.turn)%len(able)]; c.trial == best {
		c.turn++
		c.trial = able[int(c.turn)%len(able)]
	}
	c.trials = tries - 1
	return c.trial
}

// cheapest of those that have been measured; the last of able if none has.
func (c *tuned) cheapest(able []rendezvous.Scheme) rendezvous.Scheme {
	best := able[len(able)-1]
	for _, s := range able {
		if c.cost[s] != 0 && (c.cost[best] == 0 || c.cost[s] < c.cost[best]) {
			best = s
		}
	}
	return best
}

// learn notes that bytes took so long. A disturbance makes a transfer slower, never faster, so the cost follows what
// is better at once and what is worse slowly.
func (c *tuned) learn(s rendezvous.Scheme, bytes int64, took time.Duration) {
	cost := float32(took) / float32(max(bytes, 1))
	switch old := c.cost[s]; {
	case old == 0 || cost < old:
		c.cost[s] = cost
	default:
		c.cost[s] = old + (min(cost, 2*old)-old)/8
	}
}

const (
	// justNow: a PutDone polled so soon after the READ came while that went on.
	justNow = 300 * time.Nanosecond

	backStep = 6
	backMax  = 192
)

// backOf is how much of a split message the sender writes: whole pages.
func (c *tuned) backOf(size int64) int64 {
	if c.back == 0 {
		c.back = 128
	}
	return size - (size-size*int64(c.back)/256)&^4095
}

// balance: the sender was done first, or not.
func (c *tuned) balance(senderFirst bool) {
	if senderFirst {
		c.back = min(c.back+backStep, backMax)
	} else {
		c.back = max(c.back-backStep, backStep)
	}
}

// sides notes which side of r's split was done first.
func (r *Request) sides() {
	senderFirst := r.jobs.has(jobRead) || time.Since(r.frontDone) < justNow
	switch {
	case r.tuned != nil:
		r.tuned.balance(senderFirst)
	case r.crowd != nil && senderFirst:
		r.crowd.votes++
	case r.crowd != nil:
		r.crowd.votes--
	}
}

// schemes that may be chosen for r, which is matched now, in the order in which they are first tried.
func (e *Engine) schemes(r *Request) []rendezvous.Scheme {
	p := r.peer
	switch {
	case !r.canGet:
		return onlyStream
	case e.wait.watching() || p.presence == nil || !p.presence.PeerPolls():
		return onlyGet // nobody at the other end would stream
	case !r.canPut():
		return streamOrGet
	}
	return allSchemes
}

// canPut: the sender can write r's message, or a part of it.
func (r *Request) canPut() bool {
	return r.canGet && !r.peer.noSplit && r.size <= int64(len(r.buf)) && r.size >= minSplit
}

// minSplit is the shortest message worth splitting: each part costs a system call.
const minSplit = 12 << 10

var (
	onlyStream  = []rendezvous.Scheme{rendezvous.Stream}
	onlyGet     = []rendezvous.Scheme{rendezvous.Get}
	streamOrGet = []rendezvous.Scheme{rendezvous.Stream, rendezvous.Get}
	allSchemes  = []rendezvous.Scheme{rendezvous.Stream, rendezvous.Get, rendezvous.Split}
)

// choose picks the scheme for r, and the length of the back if that is Split.
func (e *Engine) choose(r *Request) (rendezvous.Scheme, int64) {
	e.fetching++
	r.fetching, r.tuned = true, nil
	p := r.peer
	if e.wait.computing() && e.fetching == 1 && r.canPut() && p.presence != nil && p.presence.PeerWaits() {
		e.alone = nil
		return rendezvous.Split, r.size
	}
	able := e.schemes(r)
	if len(able) == 1 {
		return able[0], 0
	}
	if p.tuner == nil {
		p.tuner = new(tuner)
	}
	m, i := class(r.size, r.key != 0)
	if e.fetching == 1 {
		e.alone = r
		r.tuned, r.began = &p.tuner.alone[m][i], time.Now()
		r.scheme = r.tuned.pick(able, aloneTries)
	} else {
		e.alone = nil
		c := &p.tuner.among[m][i]
		member := false
		if r.scheme, member = c.next(able); member {
			r.crowd = c
		}
		return r.scheme, c.backOf(r.size)
	}
	return r.scheme, r.tuned.backOf(r.size)
}

// next is the scheme for one more, and whether it belongs to the run.
func (c *crowd) next(able []rendezvous.Scheme) (s rendezvous.Scheme, member bool) {
	if c.left == 0 && c.open == 0 {
		c.scheme, c.left, c.bytes, c.since = c.pick(able, crowdTries), crowdRun, 0, time.Time{}
		c.votes = 0
	}
	if c.left > 0 && slices.Contains(able, c.scheme) {
		c.left--
		c.open++
		return c.scheme, true
	}
	return c.cheapest(able), false
}

// ended: one of the run has.
func (c *crowd) ended(size int64) {
	c.open--
	if c.since.IsZero() {
		c.since = time.Now()
		return
	}
	c.bytes += size
	if c.left == 0 && c.open == 0 {
		c.learn(c.scheme, c.bytes, time.Since(c.since))
		if c.votes != 0 { // once a run: those under way do not know yet
			c.balance(c.votes > 0)
		}
	}
}

// fetched is told that r's transfer has ended.
func (e *Engine) fetched(r *Request, well bool) {
	if !r.fetching {
		return
	}
	r.fetching = false
	e.fetching--
	if well && e.alone == r && r.tuned != nil {
		r.tuned.learn(r.scheme, r.size, time.Since(r.began))
	}
	if r.crowd != nil {
		r.crowd.ended(r.size)
		r.crowd = nil
	}
	r.tuned = nil
}
