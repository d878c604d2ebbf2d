package consensus

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"maps"
	"math/bits"
	"math/rand/v2"
	"slices"
	"testing"
)

// flight is a frame under way.
type flight struct {
	from int
	Message
}

// world is some ranks and what is under way between them. Frames may overtake each other. A frame of a dead rank may
// arrive, or be lost: a rank that dies between two sends is a rank whose later frames are lost.
type world struct {
	n      int
	ranks  []*Machine
	dead   uint64   // by rank
	left   uint64   // by rank
	leaves int      // how many ranks leave at most
	nudges int      // how often the ranks that wait have asked
	told   []uint64 // the deaths that a rank has been told of
	flying []flight
	values []map[uint32]Value // the decisions of each rank
	want   uint32             // how many agreements each rank makes
}

func newWorld(n int, want uint32) *world {
	w := &world{n: n, told: make([]uint64, n), want: want}
	for i := range n {
		w.ranks = append(w.ranks, New(n, i))
		w.values = append(w.values, map[uint32]Value{})
	}
	return w
}

// deep makes the tree binomial, so that few ranks have several levels.
func (w *world) deep() {
	for _, m := range w.ranks {
		m.digit = 1
	}
}

func (w *world) clone() *world {
	c := &world{n: w.n, dead: w.dead, left: w.left, leaves: w.leaves, nudges: w.nudges, told: slices.Clone(w.told),
		flying: slices.Clone(w.flying), want: w.want}
	for i, m := range w.ranks {
		d := *m
		d.dead, d.gone, d.asked = m.dead.Clone(), m.gone.Clone(), m.asked.Clone()
		d.mute, d.sought = m.mute.Clone(), m.sought.Clone()
		d.reports = [2]map[int]Value{maps.Clone(m.reports[0]), maps.Clone(m.reports[1])}
		c.ranks = append(c.ranks, &d)
		c.values = append(c.values, maps.Clone(w.values[i]))
	}
	return c
}

func (w *world) lives(rank int) bool { return w.dead>>rank&1 == 0 }

// collect takes what a rank sends, and its decision.
func (w *world) collect(rank int) {
	m := w.ranks[rank]
	for _, msg := range m.Messages() {
		w.flying = append(w.flying, flight{rank, msg})
	}
	if n, v := m.Decided(); n > 0 {
		w.values[rank][n] = v
	}
}

// gives is what a rank gives to an agreement: it can be seen in the result.
func gives(rank int, number uint32) Value {
	return Value{Flags: ^(1 << (rank % 32)), Low: uint32(rank) + number, High: uint32(rank) + number,
		Count: uint32(rank) + number}
}

func (w *world) begin(rank int) {
	m := w.ranks[rank]
	m.Begin(gives(rank, m.last+1))
	w.collect(rank)
}

func (w *world) deliver(i int) {
	f := w.flying[i]
	w.flying = slices.Delete(w.flying, i, i+1)
	if w.lives(f.To) {
		w.ranks[f.To].Hear(f.from, f.Frame)
		w.collect(f.To)
	}
}

func (w *world) tell(rank, of int) {
	w.told[rank] |= 1 << of
	w.ranks[rank].Died(of)
	w.collect(rank)
}

// callers are the living ranks that have not left.
func (w *world) callers(yield func(rank int, m *Machine) bool) {
	for i, m := range w.ranks {
		if w.lives(i) && w.left>>i&1 == 0 && !yield(i, m) {
			return
		}
	}
}

// nudge has all ranks that wait ask others.
func (w *world) nudge() {
	w.nudges++
	for i, m := range w.callers {
		m.Nudge()
		w.collect(i)
	}
}

// moves calls yield with what may happen next, each in a world of its own: a rank begins or leaves, a frame arrives, a
// rank dies, a rank is told of a death. Where nothing of that must happen some time, ranks that wait ask others. It
// reports whether nothing must happen.
func (w *world) moves(deaths int, yield func(*world)) (still bool) {
	still = true
	next := func(f func(*world)) {
		c := w.clone()
		f(c)
		yield(c)
	}
	waits := false
	for i, m := range w.callers {
		waits = waits || m.begun > m.last
		if m.begun == m.last && m.last < w.want {
			still = false
			next(func(c *world) { c.begin(i) })
			if bits.OnesCount64(w.left) < w.leaves {
				next(func(c *world) {
					c.left |= 1 << i
					c.ranks[i].Leave()
					c.collect(i)
				})
			}
		}
	}
	for i, f := range w.flying {
		if !w.lives(f.To) {
			continue
		}
		if w.lives(f.from) {
			still = false
		}
		next(func(c *world) { c.deliver(i) })
	}
	for i := range w.n {
		if !w.lives(i) {
			continue
		}
		for of := range w.n {
			if !w.lives(of) && w.told[i]>>of&1 == 0 {
				still = false
				next(func(c *world) { c.tell(i, of) })
			}
		}
		if bits.OnesCount64(w.dead) < deaths {
			next(func(c *world) { c.dead |= 1 << i })
		}
	}
	if still && waits && w.left != 0 && w.nudges < 3 {
		still = false
		next((*world).nudge)
	}
	return still
}

// wrong reports what must not be. still: nothing happens any more by itself.
func (w *world) wrong(still bool) error {
	var first [4]*Value
	for i := range w.n {
		if !w.lives(i) {
			continue
		}
		gone := w.left>>i&1 != 0
		if n := w.ranks[i].last; still && n != w.want && !gone {
			return fmt.Errorf("rank %d waits in agreement %d for ever", i, n+1)
		}
		for n, v := range w.values[i] {
			if first[n] == nil {
				first[n] = &v
			}
			if !alike(*first[n], v) {
				return fmt.Errorf("agreement %d is %+v at rank %d and %+v at another one", n, v, i, *first[n])
			}
			for other := range w.n {
				left := w.left>>other&1 != 0
				if w.lives(other) && !left && (v.Flags>>other&1 != 0 || v.Dead.Has(other)) {
					return fmt.Errorf("agreement %d is %+v at rank %d, and rank %d lives", n, v, i, other)
				}
				if v.Gone.Has(other) && !(left && v.Dead.Has(other)) {
					return fmt.Errorf("agreement %d says that rank %d has left, which has not", n, other)
				}
				if v.Dead.Has(other) && w.lives(other) && !v.Gone.Has(other) {
					return fmt.Errorf("agreement %d says that rank %d is dead and not that it has left", n, other)
				}
			}
		}
	}
	return nil
}

// alike reports whether two ranks have the same value.
func alike(a, b Value) bool {
	same := func(s, t Set) bool { return s.Within(t) && t.Within(s) }
	return a.Flags == b.Flags && a.Low == b.Low && a.High == b.High && a.Count == b.Count && same(a.Dead, b.Dead) &&
		same(a.Gone, b.Gone)
}

// key is the same for worlds in which the same may happen.
func (w *world) key(b []byte) []byte {
	put := func(vs ...uint64) {
		for _, v := range vs {
			b = binary.AppendUvarint(b, v)
		}
	}
	word := func(s Set) uint64 {
		if len(s) == 0 {
			return 0
		}
		return s[0]
	}
	value := func(v Value) { put(uint64(^v.Flags), uint64(v.Low), uint64(v.High), word(v.Dead), word(v.Gone)) }
	put(w.dead, w.left, uint64(w.nudges))
	for i, m := range w.ranks {
		if !w.lives(i) {
			continue
		}
		put(w.told[i], word(m.dead), word(m.gone), uint64(m.last), uint64(m.begun), uint64(m.told+1), word(m.asked))
		put(word(m.mute), word(m.sought))
		value(m.decided)
		if m.begun > m.last {
			value(m.own)
		}
		for _, reports := range m.reports {
			put(uint64(len(reports)))
			for from := range w.n {
				if v, ok := reports[from]; ok {
					put(uint64(from))
					value(v)
				}
			}
		}
	}
	var flying [][]byte
	own := b
	for _, f := range w.flying {
		if w.lives(f.To) {
			b = nil
			put(uint64(f.from), uint64(f.To), uint64(f.Kind), uint64(f.Number), word(f.Dead), word(f.Gone))
			value(f.Value)
			flying = append(flying, b)
		}
	}
	slices.SortFunc(flying, func(a, b []byte) int { return cmp.Compare(string(a), string(b)) })
	b = own
	for _, f := range flying {
		b = append(append(b, byte(len(f))), f...)
	}
	return b
}

// walk goes through all that may happen in w.
func walk(t *testing.T, w *world, deaths int, seen map[string]bool, most int) {
	t.Helper()
	var trail []*world
	var step func(*world)
	step = func(w *world) {
		k := string(w.key(nil))
		if seen[k] || t.Failed() {
			return
		}
		if seen[k] = true; len(seen) > most {
			t.Fatalf("more than %d states", most)
		}
		trail = append(trail, w)
		still := w.moves(deaths, step)
		if err := w.wrong(still); err != nil && !t.Failed() {
			t.Errorf("%v, after", err)
			for _, w := range trail {
				t.Logf("dead %b told %b flying %+v", w.dead, w.told, w.flying)
			}
		}
		trail = trail[:len(trail)-1]
	}
	step(w)
	t.Logf("%d states", len(seen))
}

// Whatever happens in whatever order, all ranks that live on get one value, and none waits for ever: 3 ranks of which
// two die in two agreements, 4 and 5 ranks that begin at once, and ranks that leave in place of an agreement. A rank
// that has left is dead to the others, and they are told that it has left.
func TestAllThatMayHappen(t *testing.T) {
	for _, c := range []struct {
		n, deaths int
		want      uint32
		leaves    int
		atOnce    bool
		long      bool
		tall      bool // only with the taller tree: the other one has more states, and takes a minute
	}{
		{n: 1, want: 2},
		{n: 2, deaths: 1, want: 2},
		{n: 3, deaths: 2, want: 1},
		{n: 3, deaths: 1, want: 2},
		{n: 4, deaths: 1, want: 1, atOnce: true},
		{n: 4, deaths: 2, want: 1, atOnce: true},
		{n: 3, deaths: 2, want: 2, long: true},
		{n: 4, deaths: 3, want: 1, atOnce: true, long: true},
		{n: 5, deaths: 1, want: 1, atOnce: true},
		{n: 2, deaths: 1, want: 2, leaves: 1},
		{n: 3, deaths: 1, want: 1, leaves: 1},
		{n: 3, want: 2, leaves: 2},
		{n: 4, want: 1, leaves: 1},
		{n: 3, deaths: 1, want: 2, leaves: 1},
		{n: 3, deaths: 2, want: 2, leaves: 2},
		{n: 3, deaths: 1, want: 3, leaves: 2, long: true},
		{n: 4, deaths: 1, want: 1, leaves: 1, long: true},
		{n: 4, deaths: 2, want: 1, leaves: 2, long: true, tall: true},
		{n: 4, deaths: 1, want: 2, leaves: 1, atOnce: true, long: true, tall: true},
		{n: 5, deaths: 2, want: 1, atOnce: true, long: true},
	} {
		if c.long && testing.Short() {
			continue
		}
		for _, deep := range []bool{true, false} {
			if !deep && (c.n > 4 || c.tall) {
				continue
			}
			name := fmt.Sprintf("%d ranks, %d die, %d leave, %d agreements, deep %t", c.n, c.deaths, c.leaves, c.want, deep)
			t.Run(name, func(t *testing.T) {
				w := newWorld(c.n, c.want)
				w.leaves = c.leaves
				if deep {
					w.deep()
				}
				if c.atOnce {
					for i := range c.n {
						w.begin(i)
					}
				}
				walk(t, w, c.deaths, map[string]bool{}, 20_000_000)
			})
		}
	}
}

// crowd is random: ranks begin, die and hear of it at random times, until nothing happens any more.
type crowd struct {
	world
	rnd   *rand.Rand
	sent  []int
	dying int
}

// run makes agreements until each living rank has its last one.
func (c *crowd) run(t *testing.T) {
	var order []int // ranks that have still to begin
	for range c.want {
		order = append(order, c.rnd.Perm(c.n)...)
	}
	dead := map[int]bool{}
	var news [][2]int // who is to be told of whom
	for len(order)+len(c.flying)+len(news) > 0 {
		switch k := c.rnd.IntN(10); {
		case k < 3 && len(order) > 0:
			i := c.rnd.IntN(min(len(order), 64))
			rank := order[i]
			if m := c.ranks[rank]; dead[rank] || m.begun == m.last {
				if order = slices.Delete(order, i, i+1); !dead[rank] {
					c.ranks[rank].Begin(gives(rank, m.last+1))
					c.take(rank)
				}
			} else if len(c.flying)+len(news) == 0 && c.stuck(order, dead) {
				t.Errorf("rank %d waits for ever", rank)
				return
			}
		case k < 8 && len(c.flying) > 0:
			i := c.rnd.IntN(len(c.flying))
			f := c.flying[i]
			last := len(c.flying) - 1
			c.flying[i], c.flying = c.flying[last], c.flying[:last]
			if !dead[f.To] && !(dead[f.from] && c.rnd.IntN(2) == 0) {
				c.ranks[f.To].Hear(f.from, f.Frame)
				c.take(f.To)
			}
		case k == 8 && len(news) > 0:
			i := c.rnd.IntN(len(news))
			if who := news[i][0]; !dead[who] {
				c.ranks[who].Died(news[i][1])
				c.take(who)
			}
			news[i] = news[len(news)-1]
			news = news[:len(news)-1]
		case k == 9 && c.dying > 0 && c.rnd.IntN(c.n) == 0:
			victim := c.rnd.IntN(c.n)
			if c.rnd.IntN(2) == 0 {
				victim = slices.IndexFunc(c.ranks, func(m *Machine) bool { return !dead[m.me] }) // which decides
			}
			if dead[victim] || len(dead) == c.n-1 {
				continue
			}
			c.dying--
			dead[victim] = true
			for i := range c.n {
				if !dead[i] {
					news = append(news, [2]int{i, victim})
				}
			}
		}
	}
	var first *Machine
	for i, m := range c.ranks {
		if dead[i] {
			continue
		}
		if first == nil {
			first = m
		}
		a, b := m.decided, first.decided
		if m.last != c.want || !alike(a, b) {
			t.Errorf("rank %d has %d %+v, and rank %d %d %+v", i, m.last, a, first.me, first.last, b)
		}
		if a.Dead.Has(i) {
			t.Errorf("rank %d lives, and is said to be dead", i)
		}
	}
}

// stuck reports whether all living ranks that have still to begin an agreement wait for another one.
func (c *crowd) stuck(order []int, dead map[int]bool) bool {
	return !slices.ContainsFunc(order, func(rank int) bool {
		return dead[rank] || c.ranks[rank].begun == c.ranks[rank].last
	})
}

func (c *crowd) take(rank int) {
	for _, msg := range c.ranks[rank].Messages() {
		c.sent[rank]++
		c.flying = append(c.flying, flight{rank, msg})
	}
}

func newCrowd(n int, want uint32, dying int, seed uint64) *crowd {
	rnd := rand.New(rand.NewPCG(seed, uint64(n)))
	return &crowd{world: *newWorld(n, want), rnd: rnd, sent: make([]int, n), dying: dying}
}

// Random runs of up to 1,000 ranks end with one value, whichever ranks die, and whichever rank decides.
func TestRandomDeaths(t *testing.T) {
	runs := 400
	if testing.Short() {
		runs = 80
	}
	for seed := range uint64(runs) {
		n := []int{5, 8, 17, 64}[seed%4]
		c := newCrowd(n, 1+uint32(seed%3), int(seed/4)%n, seed)
		if seed/4%2 == 0 {
			c.deep()
		}
		c.run(t)
	}
	for seed := range uint64(2) {
		newCrowd(1000, 2, 30, seed).run(t)
	}
}

// Without deaths an agreement is two messages for each rank but the first, and no rank sends more than one to each of
// its neighbours in the tree: one above it, and three below it for each level. A death adds the messages of the ranks
// next to the dead one.
func TestNumberOfMessages(t *testing.T) {
	for _, n := range []int{1, 2, 3, 8, 64, 1000} {
		c := newCrowd(n, 3, 0, 1)
		c.run(t)
		total := 0
		for rank, sent := range c.sent {
			total += sent
			if most := 3 * (1 + 3*((bits.Len(uint(n-1))+1)/2)); sent > most {
				t.Errorf("rank %d of %d has sent %d messages, more than %d", rank, n, sent, most)
			}
		}
		if total != 3*2*(n-1) {
			t.Errorf("%d ranks have sent %d messages, not %d", n, total, 3*2*(n-1))
		}
	}
	const n, deaths = 1000, 5
	for seed := range uint64(5) {
		c := newCrowd(n, 1, deaths, seed)
		c.run(t)
		total := 0
		for rank, sent := range c.sent {
			total += sent
			if most := (deaths + 1) * 3 * bits.Len(n); sent > most {
				t.Errorf("rank %d has sent %d messages, more than %d", rank, sent, most)
			}
		}
		if most := 2*n + deaths*8*bits.Len(n); total > most {
			t.Errorf("%d ranks have sent %d messages, more than %d", n, total, most)
		}
	}
}

// A rank that takes part in no agreement any more is taken for dead, and says what it has decided before.
func TestLeaving(t *testing.T) {
	w := newWorld(4, 2)
	settle := func() {
		for len(w.flying) > 0 {
			w.deliver(0)
		}
	}
	for i := range 4 {
		w.begin(i)
	}
	settle()
	w.ranks[1].Leave()
	for _, i := range []int{0, 2, 3} {
		w.begin(i)
	}
	settle()
	if n, _ := w.ranks[0].Decided(); n != 1 {
		t.Fatalf("rank 0 has agreement %d before it knows that rank 1 has left", n)
	}
	w.ranks[0].Nudge()
	w.collect(0)
	settle()
	for _, i := range []int{0, 2, 3} {
		if n, v := w.ranks[i].Decided(); n != 2 || !v.Gone.Has(1) || v.Gone.Len() != 1 || v.Dead.Len() != 1 {
			t.Errorf("rank %d has agreement %d: %+v", i, n, v)
		}
	}
	// Rank 3 asks rank 1 what the first agreement was, as if it had not heard.
	w.ranks[1].Hear(3, Frame{Kind: Report, Number: 1})
	if out := w.ranks[1].Messages(); len(out) != 1 || out[0].Kind != Decision || out[0].To != 3 || out[0].Number != 1 {
		t.Errorf("the answer is %+v", out)
	}
	// Others rightly take rank 1 for dead: it takes none of them for dead.
	w.ranks[1].Hear(3, Frame{Kind: Ask, Number: 3, Dead: w.ranks[3].Dead()})
	if dead := w.ranks[1].Dead(); dead.Len() != 0 {
		t.Errorf("rank 1 takes for dead: %v", dead)
	}
}

// A connection between two ranks that live breaks, and each takes the other one for dead. The other ranks take no third
// one for dead, and stay together: they have one value of each agreement but the one under way at that time. None waits
// for ever, also where ranks leave after their last agreement.
func TestBrokenConnection(t *testing.T) {
	seeds := uint64(20_000)
	if testing.Short() {
		seeds = 2000
	}
	for seed := range seeds {
		rnd := rand.New(rand.NewPCG(seed, 3))
		n := 3 + rnd.IntN(6)
		w := newWorld(n, 4)
		if seed%2 == 0 {
			w.deep()
		}
		a := rnd.IntN(n)
		b := (a + 1 + rnd.IntN(n-1)) % n
		breaks, broken := rnd.IntN(10*n), false
		leaves := seed%3 != 0 // when it has made all agreements a rank leaves
		for step, waits := 0, true; waits; step++ {
			var ready, stuck []int
			for i, m := range w.ranks {
				if m.begun > m.last {
					stuck = append(stuck, i)
				} else if m.last < w.want || leaves && !m.left {
					ready = append(ready, i)
				}
			}
			waits = len(ready)+len(stuck) > 0
			flying := len(w.flying)
			switch k := rnd.IntN(30); {
			case step == 100_000:
				t.Fatalf("seed %d: ranks %v wait for ever", seed, stuck)
			case step == breaks:
				broken = true
				w.tell(a, b)
				w.tell(b, a)
			case len(stuck) > 0 && (k == 0 || flying+len(ready) == 0):
				i := stuck[rnd.IntN(len(stuck))]
				w.ranks[i].Nudge()
				w.collect(i)
			case len(ready) > 0 && (k < 5 || flying == 0):
				i := ready[rnd.IntN(len(ready))]
				if m := w.ranks[i]; m.last < w.want {
					w.begin(i)
				} else {
					m.Leave()
					w.collect(i)
				}
			case flying > 0:
				i := rnd.IntN(flying)
				if f := w.flying[i]; broken && (f.from == a && f.To == b || f.from == b && f.To == a) {
					w.flying = slices.Delete(w.flying, i, i+1)
				} else {
					w.deliver(i)
				}
			}
		}
		var out Set // the ranks that others take for dead
		for i, m := range w.ranks {
			for rank := range m.gone.All {
				if !w.ranks[rank].left {
					t.Fatalf("seed %d: %d and %d have lost each other, and rank %d says that rank %d has left", seed, a, b, i, rank)
				}
			}
			for rank := range m.dead.All {
				if m.gone.Has(rank) {
					continue
				}
				if i != a && i != b && rank != a && rank != b {
					t.Fatalf("seed %d: %d and %d have lost each other, and rank %d takes rank %d for dead", seed, a, b, i, rank)
				}
				if i != a && i != b {
					out.Add(rank)
				}
			}
		}
		first, differ := -1, map[uint32]bool{}
		for i := range n {
			switch {
			case out.Has(i), w.ranks[i].alone: // it may have left since
			case first < 0:
				first = i
			default:
				for number, v := range w.values[i] {
					u := w.values[first][number]
					if !alike(u, v) {
						differ[number] = true
					}
				}
			}
		}
		if len(differ) > 1 {
			t.Fatalf("seed %d: %d and %d have lost each other, and the agreements %v give several values", seed, a, b, differ)
		}
	}
}

// The result says what all have acknowledged, and the bits of any call.
func TestValues(t *testing.T) {
	w := newWorld(3, 1)
	w.dead = 1 << 2
	for i := range 2 {
		w.tell(i, 2)
	}
	w.ranks[0].Begin(Value{Flags: 6, Low: 5, High: 5, Calls: 1, Count: 8, Acked: Set{1<<2 | 1<<1}})
	w.ranks[1].Begin(Value{Flags: 3, Low: 7, High: 7, Calls: 2, Count: 3, Acked: Set{1 << 2}})
	w.collect(0)
	w.collect(1)
	for len(w.flying) > 0 {
		w.deliver(0)
	}
	for i := range 2 {
		n, v := w.ranks[i].Decided()
		if n != 1 || v.Flags != 2 || v.Low != 5 || v.High != 7 || v.Calls != 3 || v.Count != 8 || v.Acked.Len() != 1 ||
			!v.Acked.Has(2) || v.Dead.Len() != 1 || !v.Dead.Has(2) {
			t.Errorf("rank %d has %d %+v", i, n, v)
		}
	}
}

// A rank answers no frame that cannot be, and keeps nothing of it.
func TestNonsenseInFrames(t *testing.T) {
	all := Set{^uint64(0), ^uint64(0)}
	m := New(4, 1)
	m.Begin(Value{})
	m.Messages()
	for _, f := range []Frame{{Kind: Report, Number: 0}, {Kind: Report, Number: 9}, {Kind: Decision, Number: 3},
		{Kind: Decision}, {Kind: Kinds, Number: 1}, {Kind: 77, Number: 1}, {Kind: Left, Number: 1 << 31}} {
		for _, from := range []int{-1, 0, 1, 4, 1 << 30} {
			m.Hear(from, f)
		}
	}
	if len(m.reports[0])+len(m.reports[1]) > 1 {
		t.Errorf("it keeps %v", m.reports)
	}
	m = New(4, 1)
	m.Hear(0, Frame{Kind: Report, Number: 1, Dead: all})
	if m.dead.Has(1) || m.dead.Has(4) || m.dead.Len() != 3 {
		t.Errorf("these are dead: %v", m.dead)
	}
	m.Begin(Value{Flags: 1})
	if n, v := m.Decided(); n != 1 || v.Dead.Len() != 3 {
		t.Errorf("alone it has agreement %d: %+v", n, v)
	}
}

// Sets do what their names say, beyond a word too.
func TestSets(t *testing.T) {
	var s Set
	for _, r := range []int{3, 64, 200} {
		if !s.Add(r) || s.Add(r) || !s.Has(r) {
			t.Errorf("rank %d", r)
		}
	}
	if got := slices.Collect(s.All); !slices.Equal(got, []int{3, 64, 200}) || s.Len() != 3 || s.Has(1<<20) {
		t.Error(got)
	}
	if !(Set{8}).Within(s) || s.Within(Set{8}) || !s.Within(append(s.Clone(), 0)) {
		t.Error("Within")
	}
	if got := both(s, Set{9, 1, 1}); !slices.Equal(got, Set{8, 1}) {
		t.Error(got)
	}
	for range s.All {
		break
	}
}
