package waits

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Rank is a rank with its account.
type Rank struct {
	Rank  int
	Again bool   // the process is not the first of the rank
	Host  string // "": all ranks are on one
	Account
}

const (
	mostLines  = 64
	mostNamed  = 3  // things of one call
	mostCycle  = 12 // ranks of a cycle
	foldPeers  = 4  // ranks whose calls differ in the other rank alone share a line
	mostHints  = 8  // lines of unasked messages
	mostRanges = 8
	mostSteps  = 1 << 20 // in search of a cycle
)

// Table returns the lines that say what each rank does and waits for. Ranks that do the same share a line.
func Table(all []Rank) (lines []string) {
	all = slices.Clone(all)
	slices.SortFunc(all, func(a, b Rank) int { return a.Rank - b.Rank })
	var order []string
	groups := map[string]*group{}
	for _, r := range all {
		for _, e := range r.entries() {
			e.held = e.call.heldBy(all)
			g := groups[e.key]
			if g == nil {
				g = &group{}
				groups[e.key] = g
				order = append(order, e.key)
			}
			g.add(r, e)
		}
	}
	for _, key := range order {
		lines = append(lines, groups[key].lines()...)
	}
	if more := len(lines) - mostLines; more > 0 {
		lines = append(lines[:mostLines], fmt.Sprintf("and %d more lines", more))
	}
	lines = append(lines, hints(all)...)
	if c := Cycle(all); c != "" {
		lines = append(lines, c)
	}
	return lines
}

// entry is a line of a rank, of those that may be folded by key.
type entry struct {
	key  string
	call *Call // nil: note
	note string
	held []int // the ranks that have the locks which the call waits for
}

func (r *Rank) entries() (all []entry) {
	for i := range r.Calls {
		c := &r.Calls[i]
		key := fmt.Sprint(c.Op, "\x00", c.At, "\x00", c.Number, "\x00", c.Comm)
		switch {
		case c.Number == 0 && len(c.Waits) == 1 && c.More == 0 && c.Waits[0].Kind != Step:
			w := c.Waits[0]
			w.Peer = 0
			key += fmt.Sprint("\x00", w)
		case c.Number == 0:
			key += fmt.Sprint("\x00", c.Waits, c.More)
		}
		all = append(all, entry{key: key, call: c})
	}
	if len(all) == 0 {
		all = append(all, entry{key: "\x00" + r.Note, note: r.Note})
	}
	return all
}

// group are ranks that may share a line.
type group struct {
	ranks []Rank
	entry []entry
}

func (g *group) add(r Rank, e entry) { g.ranks, g.entry = append(g.ranks, r), append(g.entry, e) }

func (g *group) lines() []string {
	e := g.entry[0]
	if e.call == nil {
		return []string{g.who() + ": " + e.note}
	}
	if c := e.call; c.Number == 0 && len(c.Waits) == 1 && c.More == 0 && c.Waits[0].Kind != Step && !g.samePeer() {
		if len(g.ranks) < foldPeers {
			var lines []string
			for i := range g.ranks {
				one := group{g.ranks[i : i+1], g.entry[i : i+1]}
				lines = append(lines, one.lines()...)
			}
			return lines
		}
		var pairs []string
		for i, r := range g.ranks[:2] {
			pairs = append(pairs, fmt.Sprintf("rank %d %s %s", r.Rank, c.Waits[0].way(), peer(g.entry[i].call.Waits[0].Peer)))
		}
		w := c.Waits[0]
		return []string{fmt.Sprintf("%s: %s, each %s another rank (%s, ...)%s%s", g.who(), c.Op, w.way(),
			strings.Join(pairs, ", "), w.envelope(), g.tail())}
	}
	return []string{g.who() + ": " + g.what() + g.tail()}
}

func (g *group) samePeer() bool {
	first := g.entry[0].call.Waits[0].Peer
	return !slices.ContainsFunc(g.entry, func(e entry) bool { return e.call.Waits[0].Peer != first })
}

// who names the ranks, and their host if they have one and there are others.
func (g *group) who() string {
	var ids []int
	hosts := map[string]bool{}
	for _, r := range g.ranks {
		ids = append(ids, r.Rank)
		hosts[r.Host] = true
	}
	on := ""
	switch {
	case len(hosts) > 1:
		on = fmt.Sprintf(" on %d hosts", len(hosts))
	case g.ranks[0].Host != "":
		on = " on " + g.ranks[0].Host
	}
	return Ranks(ids) + g.again() + on
}

// again says which of the ranks have been started again.
func (g *group) again() string {
	var ids []int
	for _, r := range g.ranks {
		if r.Again {
			ids = append(ids, r.Rank)
		}
	}
	switch len(ids) {
	case 0:
		return ""
	case len(g.ranks):
		return " (started again)"
	}
	return " (" + ranges(ids) + " started again)"
}

// Ranks names ranks: "rank 3", "ranks 0-61, 63".
func Ranks(ids []int) string {
	ids = slices.Compact(slices.Sorted(slices.Values(ids)))
	if len(ids) == 1 {
		return "rank " + strconv.Itoa(ids[0])
	}
	return "ranks " + ranges(ids)
}

func ranges(ids []int) string {
	var parts []string
	for i := 0; i < len(ids); {
		k := i
		for k+1 < len(ids) && ids[k+1] == ids[k]+1 {
			k++
		}
		switch {
		case k > i+1:
			parts = append(parts, fmt.Sprintf("%d-%d", ids[i], ids[k]))
		case k == i+1:
			parts = append(parts, strconv.Itoa(ids[i]), strconv.Itoa(ids[k]))
		default:
			parts = append(parts, strconv.Itoa(ids[i]))
		}
		i = k + 1
	}
	if more := len(parts) - mostRanges; more > 0 {
		parts = append(parts[:mostRanges], "...")
	}
	return strings.Join(parts, ", ")
}

// what says which call the ranks are in and what they wait for.
func (g *group) what() string {
	c := g.entry[0].call
	op := c.Op
	if op == "" {
		op = "a call"
	}
	if c.Number > 0 {
		op += fmt.Sprintf(" number %d", c.Number)
	}
	if c.Comm != "" {
		op += " on " + c.Comm
	}
	if missing := g.missing(); len(missing) > 0 {
		return op + ": waits for " + ranges(missing)
	}
	var parts []string
	for _, w := range c.Waits {
		if p := w.String(); w.Kind != Step && !slices.Contains(parts, p) {
			parts = append(parts, p)
		}
	}
	if more := len(parts) - mostNamed + c.More; len(parts) > mostNamed || c.More > 0 {
		parts = append(parts[:min(mostNamed, len(parts))], fmt.Sprintf("%d more", max(more, c.More)))
	}
	switch len(parts) {
	case 0:
		return op
	case 1:
		return op + " " + parts[0]
	}
	return op + ": " + strings.Join(parts, "; ")
}

// missing are the ranks that a collective call waits for, and of them those that are not in it, if there are any.
func (g *group) missing() []int {
	waited, in := map[int]bool{}, map[int]bool{}
	for i, e := range g.entry {
		in[g.ranks[i].Rank] = true
		for _, w := range e.call.Waits {
			if w.Kind == Step && w.Peer >= 0 {
				waited[w.Peer] = true
			}
		}
	}
	outside := maps.Clone(waited)
	maps.DeleteFunc(outside, func(rank int, _ bool) bool { return in[rank] })
	if len(outside) > 0 {
		waited = outside
	}
	return slices.Sorted(maps.Keys(waited))
}

// tail says which ranks have the lock that the ranks wait for, for how long these have waited at least, and where.
func (g *group) tail() (t string) {
	least, held := g.entry[0].call.For, g.entry[0].held
	for _, e := range g.entry {
		least = min(least, e.call.For)
		if !slices.Equal(e.held, held) {
			held = nil // they wait for several locks
		}
	}
	if len(held) > 0 {
		t = ", held by " + ranges(held)
	}
	if least >= time.Second/10 {
		t += ", for " + seconds(least)
	}
	if at := g.entry[0].call.At; at != "" {
		t += ", at " + at
	}
	return t
}

func seconds(d time.Duration) string {
	if d < 10*time.Second {
		return fmt.Sprintf("%.1f s", d.Seconds())
	}
	return fmt.Sprintf("%.0f s", d.Seconds())
}

// String describes a wait for a message, its receive or a lock: "to 1, tag 0, 8 B, world.dup2".
func (w Wait) String() string { return w.way() + " " + peer(w.Peer) + w.envelope() }

func (w Wait) way() string {
	switch w.Kind {
	case Match:
		return "to"
	case Lock:
		return "of"
	}
	return "from"
}

func (w Wait) envelope() (s string) {
	switch {
	case w.Kind == Lock:
	case w.Tag == Any:
		s = ", tag any"
	default:
		s = ", tag " + strconv.Itoa(w.Tag)
	}
	if w.Bytes > 0 || w.Kind == Match {
		s += ", " + size(w.Bytes)
	}
	if w.Comm != "" {
		s += ", " + w.Comm
	}
	return s
}

func size(n int64) string {
	switch {
	case n >= 10<<20:
		return fmt.Sprintf("%d MiB", n>>20)
	case n >= 10<<10:
		return fmt.Sprintf("%d KiB", n>>10)
	}
	return fmt.Sprintf("%d B", n)
}

func peer(rank int) string {
	if rank == Any {
		return "any rank"
	}
	return strconv.Itoa(rank)
}

// hints say which ranks wait for a message and have others that no receive has asked for.
func hints(all []Rank) (lines []string) {
	more := 0
	for _, r := range all {
		for _, u := range r.Unasked {
			ask := r.asks(u)
			switch {
			case ask == "":
			case len(lines) == mostHints:
				more++
			default:
				lines = append(lines, fmt.Sprintf("rank %d has %d %s from %d, %s, %s: did the receive ask for tag %s?", r.Rank,
					u.Count, plural(u.Count, "message"), u.From, tags(u), u.Comm, ask))
			}
		}
	}
	if more > 0 {
		lines = append(lines, fmt.Sprintf("and %d more of ranks that have other messages than they wait for", more))
	}
	return lines
}

// asks is the tag of a receive that waits for a message of that rank on that communicator; "": there is none.
func (r *Rank) asks(u Unasked) string {
	for _, c := range r.Calls {
		for _, w := range c.Waits {
			if w.Kind == Message && w.Comm == u.Comm && (w.Peer == u.From || w.Peer == Any) && w.Tag != Any {
				return strconv.Itoa(w.Tag)
			}
		}
	}
	return ""
}

func tags(u Unasked) string {
	var parts []string
	for _, t := range u.Tags {
		parts = append(parts, strconv.Itoa(t))
	}
	if len(u.Tags) == mostTags && u.Count > mostTags {
		parts = append(parts, "...")
	}
	return plural(len(u.Tags), "tag") + " " + strings.Join(parts, ", ")
}

func plural(n int, word string) string {
	if n == 1 {
		return word
	}
	return word + "s"
}

// Cycle says which ranks wait for each other in a circle: "0 waits for 1 waits for 0". "": there is no circle, as far
// as the accounts say.
func Cycle(all []Rank) string {
	next := waitedFor(all)
	var best []int
	left := mostSteps
	for _, r := range all {
		if c := circle(next, r.Rank, &left); c != nil && (best == nil || len(c) < len(best)) {
			if best = c; len(best) == 2 {
				break
			}
		}
	}
	if best == nil {
		return ""
	}
	var b strings.Builder
	for i, rank := range best {
		if i == mostCycle-1 && len(best) > mostCycle {
			fmt.Fprintf(&b, "... waits for %d waits for %d (%d ranks)", best[len(best)-1], best[0], len(best))
			return b.String()
		}
		fmt.Fprintf(&b, "%d waits for ", rank)
	}
	return b.String() + strconv.Itoa(best[0])
}

// heldBy are the ranks that have the lock which the call waits for.
func (c *Call) heldBy(all []Rank) (ids []int) {
	if c == nil || len(c.Waits) != 1 || c.Waits[0].Kind != Lock {
		return nil
	}
	for i := range all {
		if all[i].has(c.Window, c.Waits[0].Peer) {
			ids = append(ids, all[i].Rank)
		}
	}
	return ids
}

// has reports whether the rank has that lock.
func (r *Rank) has(window uint32, rank int) bool {
	return slices.ContainsFunc(r.Holds, func(h Hold) bool {
		return h.Window == window && slices.ContainsFunc(h.Ranks, func(run [2]int) bool {
			return run[0] <= rank && rank <= run[1]
		})
	})
}

// waitedFor are the ranks that each rank waits for.
func waitedFor(all []Rank) map[int][]int {
	next := map[int][]int{}
	for _, r := range all {
		for _, c := range r.Calls {
			if c.any() && len(c.Waits) > 1 {
				continue // one of them is enough
			}
			for _, rank := range c.heldBy(all) {
				if rank != r.Rank {
					next[r.Rank] = append(next[r.Rank], rank)
				}
			}
			for _, w := range c.Waits {
				if w.Kind != Lock && w.Peer >= 0 && w.Peer != r.Rank {
					next[r.Rank] = append(next[r.Rank], w.Peer)
				}
			}
		}
	}
	return next
}

// any reports whether one of the things that the call waits for ends it.
func (c *Call) any() bool {
	return strings.Contains(c.Op, "Any") || strings.Contains(c.Op, "Some")
}

// circle is a shortest way from a rank back to it, without the rank at the end; nil: no such way, or it is not found
// in the steps that are left.
func circle(next map[int][]int, from int, left *int) []int {
	before := map[int]int{}
	queue := []int{from}
	for len(queue) > 0 {
		at := queue[0]
		queue = queue[1:]
		for _, to := range next[at] {
			if *left--; *left < 0 {
				return nil
			}
			if to == from {
				way := []int{at}
				for at != from {
					at = before[at]
					way = append(way, at)
				}
				slices.Reverse(way)
				return way
			}
			if _, seen := before[to]; !seen {
				before[to] = at
				queue = append(queue, to)
			}
		}
	}
	return nil
}
