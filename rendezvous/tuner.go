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
// they end in the order in which they began. A transfer that has ended together with the first (Chooser.Together) does
// not count.
type Tuner struct {
	classes *[2][tunedClasses]tunedClass // by the length in bits; [1]: the sender's memory is mapped here
}

// tunedClass is what is known of messages of about the same size.
type tunedClass struct {
	alone tuned
	among crowd
}

const (
	tunedClasses = 40
	aloneTries   = 8       // of each scheme, one after the other, before one is preferred
	crowdTries   = 2       // runs
	crowdRun     = 32      // transfers, fewer where they are long
	crowdLeast   = 8       // transfers
	crowdBytes   = 2 << 20 // of a run of more than crowdLeast
	// A scheme that costs so many times as much as the cheapest has lost: it is not measured more than it must be.
	lostBy = 2
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
	i := min(bits.Len64(uint64(size)), tunedClasses-1)
	c, shorter := &t.classes[m][i], &t.classes[m][max(i-1, 0)]
	c.alone.inherit(&shorter.alone, aloneTries)
	c.among.inherit(&shorter.among.tuned, crowdTries)
	return &c.alone, &c.among
}

// inherit, where nothing has been tried, takes over what has lost for shorter messages: one transfer of 4 MiB by the
// wrong scheme takes as long as ten by the right one.
func (c *tuned) inherit(shorter *tuned, tries uint8) {
	if c.tried != [schemes]uint8{} {
		return
	}
	c.back = shorter.back
	for _, s := range Schemes {
		if shorter.lost(s) {
			c.cost[s.index], c.tried[s.index] = shorter.cost[s.index], tries
		}
	}
}

// lost reports whether s has cost lostBy times as much as another scheme.
func (c *tuned) lost(s *Scheme) bool {
	for _, other := range c.cost {
		if other != 0 && c.cost[s.index] > lostBy*other {
			return true
		}
	}
	return false
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
	few := (tries + 3) / 4
	for _, s := range able { // each a few times, then those more often that have not lost
		if c.tried[s.index] < few {
			c.tried[s.index]++
			return s
		}
	}
	for _, s := range able {
		if c.tried[s.index] < tries && !c.lost(s) {
			c.tried[s.index]++
			return s
		}
	}
	if c.trials > 0 && slices.Contains(able, c.trial) && (c.trials > tries-few || !c.lost(c.trial)) {
		c.trials--
		return c.trial
	}
	c.trials = 0
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

// cheapest of able; the last of those that have not been measured, if there are such.
func (c *tuned) cheapest(able []*Scheme) *Scheme {
	best := able[0]
	for _, s := range able[1:] {
		if c.cost[s.index] <= c.cost[best.index] {
			best = s
		}
	}
	return best
}

// learn notes that bytes took so many nanoseconds. A disturbance makes a transfer slower, never faster, so the cost
// follows what is better at once and what is worse slowly.
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

// balance notes whether the sender was done first.
func (c *tuned) balance(senderFirst bool) {
	if senderFirst {
		c.back = min(c.back+backStep, backMax)
	} else {
		c.back = max(c.back-backStep, backStep)
	}
}

// next is the scheme for one more, and whether it belongs to the run.
func (c *crowd) next(able []*Scheme, size int64) (s *Scheme, member bool) {
	if c.left == 0 && c.open == 0 {
		c.scheme, c.bytes, c.since, c.votes = c.pick(able, crowdTries), 0, 0, 0
		c.left = int(min(max(crowdBytes/max(size, 1), crowdLeast), crowdRun))
	}
	if c.left > 0 && slices.Contains(able, c.scheme) {
		c.left--
		c.open++
		return c.scheme, true
	}
	return c.cheapest(able), false
}

// ended is called when a transfer of the run has ended.
func (c *crowd) ended(size, now int64) {
	c.open--
	if c.since == 0 {
		c.since = now
	}
	if now == c.since { // with the first: the time of that is not known
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
