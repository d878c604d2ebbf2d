package eager

import "math/bits"

// Tuner decides which blocking sends of medium length to one peer are eager. Two copies through a ring cost less than
// one READ on one processor, and more on another, so both are measured: by the time from one such Send of the caller to
// the next, in which all shows that a message costs its job, on both sides.
//
// Messages of about the same length go the same way for a run. In a contest the ways take turns, and the one with the
// shortest run wins.
type Tuner struct {
	Now     func() int64 // the time in nanoseconds, of a clock that does not go back
	classes [tunerClasses]contest
}

// contest is what is known of messages of about the same length.
type contest struct {
	announce bool     // the way of this run
	winner   bool     // that of the latest contest
	runs     int8     // of this contest that have ended; contestRuns: there is none
	left     int32    // messages until the run, or its lead-in, or the pause between two contests ends
	pause    int32    // messages of the next pause; 0: there has been no contest
	began    int64    // the run; 0: it is in its lead-in, whose messages what came before may hold up
	lost     int64    // when the challenger has lost, in its first run; 0: in all others
	least    [2]int64 // the shortest run of this contest, eager and announced
}

const (
	tunerClasses = 8
	runBytes     = 256 << 10
	contestRuns  = 6
	// A pause is so many runs at first; each contest that changes nothing doubles it.
	firstPause = 64
	lastPause  = 1024
	// A challenger must be so much better to win; one that is so much worse has lost in its first run, which ends then:
	// to announce to a receiver that computes is to wait for it. In the first contest it must be worse by far.
	better, worse, farWorse = 0.97, 1.2, 3
	// leadIn is the part of a run that an announced one's lead-in has: its first message waits for all before it.
	leadIn = 4
)

// Announce reports whether the next message, of n bytes, goes by rendezvous, and counts it.
func (t *Tuner) Announce(n int) bool {
	c := &t.classes[bits.Len(uint(n-1)>>10)%tunerClasses]
	if c.left--; c.left < 0 || c.lost != 0 && t.Now() > c.lost {
		c.turn(t.Now(), int32(max(runBytes/n, 1)))
	}
	return c.announce
}

// turn goes on where a run of so many messages, its lead-in or a pause ends.
func (c *contest) turn(now int64, run int32) {
	c.left = run - 1
	switch {
	case c.runs == contestRuns: // the pause
		c.runs, c.least = 0, [2]int64{}
		c.began = now
	case c.began == 0: // the lead-in
		c.began = now
		if c.runs == 1 {
			c.lost = now + int64(c.worse()*float64(c.least[index(c.winner)]))
		}
	default:
		way := &c.least[index(c.announce)]
		if took := max(now-c.began, 1); *way == 0 || took < *way {
			*way = took
		}
		c.began, c.lost = 0, 0
		c.runs++
		won, lost := float64(c.least[index(c.winner)]), float64(c.least[index(!c.winner)])
		if c.runs == contestRuns || c.runs == 2 && lost > c.worse()*won {
			c.end(lost < better*won, run)
		} else if c.announce = !c.announce; c.announce {
			c.left = run/leadIn - 1
		}
	}
}

// worse is how many times as much a challenger costs that has lost in its first run.
func (c *contest) worse() float64 {
	if c.pause == 0 {
		return farWorse
	}
	return worse
}

// end ends the contest.
func (c *contest) end(changed bool, run int32) {
	if c.pause = min(2*c.pause, lastPause*run); changed || c.pause == 0 {
		c.pause = firstPause * run
	}
	if changed {
		c.winner = !c.winner
	}
	c.announce, c.left, c.runs = c.winner, c.pause, contestRuns
}

func index(announce bool) int {
	if announce {
		return 1
	}
	return 0
}
