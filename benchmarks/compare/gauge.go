package main

import (
	"fmt"
	"math"
	"slices"
)

// The state of a machine wanders, above all that of a virtual one: where its processors are just now, a cache line
// takes 0.035, 0.07 or 0.28 µs from one to the other, and every library follows. The gauge is that time. It is taken
// before and after each turn of a library, and only turns in one state are compared.

// steadyWithin is how far apart the gauges of what is compared may be.
const steadyWithin = 1.5

// steady reports whether gauges, in µs, are of one state. Gauges that no clock can have measured are of none.
func steady(gauges ...float64) bool {
	for _, g := range gauges {
		if !(g > 0) || math.IsInf(g, 0) {
			return false
		}
	}
	return len(gauges) > 0 && slices.Max(gauges) <= steadyWithin*slices.Min(gauges)
}

// quietState is the typical gauge of the machine's quiet state: the median of those that are in one state with the
// least. A single reading may be lower than all others. 0: there are none.
func quietState(gauges []float64) float64 {
	var known []float64
	for _, g := range gauges {
		if steady(g) {
			known = append(known, g)
		}
	}
	if len(known) == 0 {
		return 0
	}
	slices.Sort(known)
	end, _ := slices.BinarySearchFunc(known, known[0], func(g, least float64) int {
		if steady(g, least) {
			return -1
		}
		return 1
	})
	return median(known[:end])
}

// turn is one run of one library.
type turn struct {
	library int
	lines   []line
	gauge   [2]float64 // before and after it; zeros where there is no gauge
}

// turns lets the libraries have their turns and throws out those that cannot be compared.
type turns struct {
	gauge  func() float64                        // nil: all turns count
	play   func(library int) (_ []line, ok bool) // !ok: the library has failed, and has no turn in this round
	repeat func() bool                           // whether one more turn is repeated
}

// round gives each library a turn, in this order. Then, as long as there are repetitions, it gives one more to a
// library that has none in the state of the machine in which most have one. It returns the turns of that state, by
// library, and how many were thrown out.
func (u turns) round(order []int) (kept map[int]turn, thrown int) {
	var turns []turn
	var before float64
	if u.gauge != nil {
		before = u.gauge()
	}
	order = slices.Clone(order)
	next := func(library int) {
		lines, ok := u.play(library)
		if !ok {
			order = slices.DeleteFunc(order, func(l int) bool { return l == library })
			return
		}
		t := turn{library: library, lines: lines}
		if u.gauge != nil {
			t.gauge = [2]float64{before, u.gauge()}
			before = t.gauge[1]
		}
		turns = append(turns, t)
	}
	for _, library := range slices.Clone(order) {
		next(library)
	}
	for {
		kept = u.comparable(turns)
		missing := slices.IndexFunc(order, func(library int) bool { _, ok := kept[library]; return !ok })
		if missing < 0 || !u.repeat() {
			return kept, len(turns) - len(kept)
		}
		next(order[missing])
	}
}

// comparable are the turns in one state, of as many libraries as possible, the latest of each. Of several such states
// it takes the latest: it is more likely to last.
func (u turns) comparable(turns []turn) (best map[int]turn) {
	latest := -1 // turn of best
	for _, lowest := range turns {
		least := min(lowest.gauge[0], lowest.gauge[1])
		state, last := make(map[int]turn), -1
		for i, t := range turns {
			if u.gauge == nil || steady(least, t.gauge[0], t.gauge[1]) && min(t.gauge[0], t.gauge[1]) >= least {
				state[t.library], last = t, i
			}
		}
		if len(state) > len(best) || len(state) == len(best) && last > latest {
			best, latest = state, last
		}
	}
	return best
}

// turnOrder is the order of the libraries in a round: forward, then backward, since a machine may get slower or faster
// all the time.
func turnOrder(libraries, round int) []int {
	order := make([]int, libraries)
	for i := range order {
		order[i] = i
	}
	if round%2 == 1 {
		slices.Reverse(order)
	}
	return order
}

// nanoseconds is how a gauge is shown, since a person reads 35 more easily than 0.035.
func nanoseconds(us float64) string { return fmt.Sprintf("%.0f", us*1e3) }
