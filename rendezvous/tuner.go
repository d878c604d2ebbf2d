package rendezvous

import (
	"math/bits"
	"slices"
)

// Tuner chooses among the schemes that work for a peer by what each of them has cost lately. Which is fastest depends
// on how far apart the two processors are, on what lies in whose cache and on how busy both are; on one and the same
// machine it was seen to change by the hour, so it is measured on the job's own messages rather than decided here.
//
// A transfer that is alone from match to end is measured by itself. One among others takes as long as all of them, so
// there a run of transfers is given one scheme, and the time from the end of its first to the end of its last counts:
// they end in the order in which they began.
type Tuner struct{ classes *[2][tunedClasses]tunedClass } // by the length in bits; [1]: the sender's memory is mapped here

// tunedClass is what is known of messages of about the same size.
type tunedClass struct {
	alone tuned
	among crowd
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
	cost  [schemes]float32 // ns per byte, see learn
	tried [schemes]uint8
	// A trial is as many picks in a row as at the beginning: a scheme's first transfer finds the lines where the other
	// scheme has left them, and says little about the next.
	trial    *Scheme
	trials   uint8  // still to come
	turn     uint32 // which scheme's turn it is
	retry    uint32 // picks between two trials; 0: not set yet
	untilTry uint32
	before   *Scheme // preferred when the last trial began
	// back is the part of a split message that the sender writes, in 1/256; 0: not chosen yet. It moves towards where
	// both are done at the same time.
	back int16
}

// crowd is the latest run of transfers with one scheme.
type crowd struct {
	tuned
	scheme *Scheme
	left   int // transfers of the run still to begin
	open   int // begun and not ended
	votes  int // transfers where the sender was done first, less those where it was not
	bytes  int64
	since  int64 // the end of the first; 0 before
}

func (t *Tuner) class(size int64, mapped bool) (alone *tuned, among *crowd) {
	if t.classes == nil {
		t.classes = new([2][tunedClasses]tunedClass)
	}
	m := 0
	if mapped {
		m = 1
	}
	c := &t.classes[m][min(bits.Len64(uint64(size)), tunedClasses-1)]
	return &c.alone, &c.among
}

// Prefer makes s look like the cheapest, whatever is measured from now on: for tests.
func (t *Tuner) Prefer(s *Scheme) {
	t.class(0, false)
	for m := range t.classes {
		for i := range t.classes[m] {
			c := &t.classes[m][i]
			for _, u := range []*tuned{&c.alone, &c.among.tuned} {
				for o := range u.cost {
					u.cost[o], u.tried[o] = 1e9, 255
				}
				u.cost[s.index] = 1e-9
			}
		}
	}
}

// pick returns the scheme for the next transfer or run; able has at least one.
func (c *tuned) pick(able []*Scheme, tries uint8) *Scheme {
	for _, s := range able {
		if c.tried[s.index] < tries {
			c.tried[s.index]++
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
func (c *tuned) cheapest(able []*Scheme) *Scheme {
	best := able[len(able)-1]
	for _, s := range able {
		if c.cost[s.index] != 0 && (c.cost[best.index] == 0 || c.cost[s.index] < c.cost[best.index]) {
			best = s
		}
	}
	return best
}

// learn notes that bytes took so many nanoseconds. A disturbance makes a transfer slower, never faster, so the cost follows what
// is better at once and what is worse slowly.
func (c *tuned) learn(s *Scheme, bytes, took int64) {
	cost := float32(took) / float32(max(bytes, 1))
	switch old := c.cost[s.index]; {
	case old == 0 || cost < old:
		c.cost[s.index] = cost
	default:
		c.cost[s.index] = old + (min(cost, 2*old)-old)/8
	}
}

// How the back of a split message grows and shrinks.
const (
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

// next is the scheme for one more, and whether it belongs to the run.
func (c *crowd) next(able []*Scheme) (s *Scheme, member bool) {
	if c.left == 0 && c.open == 0 {
		c.scheme, c.left, c.bytes, c.since = c.pick(able, crowdTries), crowdRun, 0, 0
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
func (c *crowd) ended(size, now int64) {
	c.open--
	if c.since == 0 {
		c.since = now
		return
	}
	c.bytes += size
	if c.left == 0 && c.open == 0 {
		c.learn(c.scheme, c.bytes, now-c.since)
		if c.votes != 0 { // once a run: those under way do not know yet
			c.balance(c.votes > 0)
		}
	}
}
