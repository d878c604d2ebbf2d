package waits

import "time"

// Watch finds that no rank of a job can move. It is pure: its user asks the ranks, and says what they answer and when.
//
// A look at all ranks costs each of them something, so Watch glances at one rank until that stands in two glances in a
// row and has not moved in between. Then it looks at all. They stand if each of them says that it goes on only when
// another rank does something, as many messages have been taken as were sent, and for Limit all looks find the same.
// A message that is under way from one rank to another has been sent and not taken. A rank that moves has, in the next
// look, another number of messages or operations behind it; so two looks that agree have no step between them. What is
// not counted, such as an answer of the library itself, has the time of many looks to arrive: after a pause in which
// nothing ran (Ctrl-Z, a machine that slept) no old look counts for much.
//
// The user calls it while all ranks run: what a rank has sent that has ended is not known.
//
// A look that fails says which rank does not stand, and the next glances are at that one: as long as it computes, no
// other rank is asked anything.
type Watch struct {
	Limit time.Duration

	at     int       // the rank to glance at
	seen   *Account  // its last glance, if it stood
	all    bool      // look at all
	begun  time.Time // the first look at all that agrees with those since
	agreed int       // how many looks have
	moved  map[int]uint64
	failed int // looks at all in a row that have failed
	rest   int // turns to leave out
}

// Next says what to ask: one rank for a Glance, or all of them for their Stacks (rank is Any). ok: there is something
// to ask in this turn. Turns are a small part of Limit apart.
func (w *Watch) Next(ranks []int) (rank int, level Level, ok bool) {
	if len(ranks) == 0 {
		return 0, 0, false
	}
	if w.rest > 0 {
		w.rest--
		return 0, 0, false
	}
	if w.all {
		return Any, Stacks, true
	}
	for _, r := range ranks {
		if r == w.at {
			return r, Glance, true
		}
	}
	w.at, w.seen = ranks[0], nil
	return w.at, Glance, true
}

// Hear takes the answers to what Next has said; ranks are those that run. It reports whether no rank can move.
func (w *Watch) Hear(now time.Time, ranks []int, answers map[int]Account) bool {
	if !w.all {
		a, ok := answers[w.at]
		switch {
		case !ok || !a.Stands:
			w.seen, w.failed = nil, 0
		case w.seen == nil || w.seen.Moved != a.Moved:
			w.seen = &a
		default:
			w.all, w.moved = true, nil
		}
		return false
	}
	var sent, taken uint64
	for _, r := range ranks {
		a, ok := answers[r]
		if !ok || !a.Stands || w.moved != nil && w.moved[r] != a.Moved {
			w.giveUp(r)
			return false
		}
		sent, taken = sent+a.Sent, taken+a.Taken
	}
	if sent != taken || w.moved != nil && len(w.moved) != len(ranks) {
		w.giveUp(ranks[0])
		return false
	}
	if w.moved == nil {
		w.begun, w.agreed, w.moved = now, 0, map[int]uint64{}
		for _, r := range ranks {
			w.moved[r] = answers[r].Moved
		}
	}
	w.agreed++
	return now.Sub(w.begun) >= w.Limit && w.agreed >= leastLooks
}

// leastLooks must agree.
const leastLooks = 10

// giveUp is called when rank r does not stand. Where that happens again and again, turns are left out: r may be in a
// call while another goroutine of it computes, which a glance does not see.
func (w *Watch) giveUp(r int) {
	w.at, w.seen, w.all, w.moved = r, nil, false, nil
	w.failed++
	w.rest = 1<<min(w.failed, 4) - 2
}
