package checkpoint

import (
	"math/rand/v2"
	"slices"
	"testing"
)

func TestPartners(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		hosts := make([]int, 1+r.IntN(12))
		ranks := map[int]int{}
		for i := range hosts {
			hosts[i] = r.IntN(5)
			ranks[hosts[i]]++
		}
		k := r.IntN(4)
		all := partners(hosts, k)
		for rank, ps := range all {
			if len(ps) != min(k, len(hosts)-1) {
				t.Fatalf("%v, %d: rank %d has the partners %v", hosts, k, rank, ps)
			}
			seen := map[int]int{}
			used := map[int]bool{}
			for _, p := range ps {
				seen[p]++
				used[hosts[p]] = true
				if p == rank || seen[p] > 1 {
					t.Fatalf("%v, %d: rank %d has the partners %v", hosts, k, rank, ps)
				}
			}
			if want := min(k, len(ranks)-1); len(used) < want {
				t.Fatalf("%v, %d: the partners %v of rank %d are on %d hosts, not %d", hosts, k, ps, rank, len(used), want)
			}
			own := len(hosts) - ranks[hosts[rank]] // ranks elsewhere
			for i, p := range ps {
				if hosts[p] == hosts[rank] && i < min(k, own) {
					t.Fatalf("%v, %d: the partners %v of rank %d begin on its own host", hosts, k, ps, rank)
				}
			}
		}
	}
}

// Where all hosts have as many ranks, none holds more copies than another.
func TestPartnersAreShared(t *testing.T) {
	for _, hosts := range [][]int{{0, 0, 0, 0}, {0, 0, 1, 1}, {0, 1, 0, 1, 0, 1}, {0, 0, 0, 1, 1, 1, 2, 2, 2}} {
		for k := range 3 {
			held := make([]int, len(hosts))
			for _, ps := range partners(hosts, k) {
				for _, p := range ps {
					held[p]++
				}
			}
			if slices.Min(held) != k || slices.Max(held) != k {
				t.Errorf("%v, %d: the ranks hold %v copies", hosts, k, held)
			}
		}
	}
}

// model is a job without messages: each step of Save at each rank is one move.
type model struct {
	r     *rand.Rand
	ranks []*member
	to    [][]int
	step  int64
}

type member struct {
	own     copies
	held    map[int]*copies
	current header
	next    uint64
	behind  bool // its last Save has not ended
}

func newMember() *member { return &member{held: map[int]*copies{}} }

// fill is what end does in Save, with the step as the slices.
func fill(c *copies, keep, h header) {
	s := c.begin(keep, 8)
	h.Length = 8
	h.put(s.data)
	s.data[headerSize] = byte(h.Step)
	s.end(h)
}

// save makes a Save of which each move may be the last. It reports whether any rank has ended it well.
func (m *model) save(moves int) (ended bool) {
	m.step++
	h := m.ranks[0].current
	base := header{Lineage: h.Lineage, Number: m.ranks[0].next, Before: h.Number, Step: m.step, Size: uint32(len(m.ranks))}
	var all []func()
	for r, x := range m.ranks {
		h := base
		h.Owner = uint32(r)
		all = append(all, func() { x.next++; fill(&x.own, x.current, h) })
		for _, p := range m.to[r] {
			all = append(all, func() {
				y := m.ranks[p]
				if y.held[r] == nil {
					y.held[r] = &copies{}
				}
				fill(y.held[r], y.current, h)
			})
		}
	}
	// A message follows the copy that it has, and the vote follows all.
	own := len(all)
	m.r.Shuffle(own, func(i, j int) { all[i], all[j] = all[j], all[i] })
	for r, x := range m.ranks {
		h := base
		h.Owner = uint32(r)
		all = append(all, func() { x.current = h; ended = true })
	}
	for i, move := range all {
		if i == moves {
			return ended
		}
		move()
	}
	return ended
}

// A job of the model saves, loses ranks at any move, and restores. It always finds the newest checkpoint that any rank
// believes to be whole, or a newer one, and never parts of two.
func TestModel(t *testing.T) {
	for seed := range uint64(3000) {
		r := rand.New(rand.NewPCG(seed, 7))
		n, k := 2+r.IntN(5), 1+r.IntN(2)
		hosts := make([]int, n)
		for i := range hosts {
			hosts[i] = r.IntN(3)
		}
		m := &model{r: r, to: partners(hosts, k)}
		for range n {
			x := newMember()
			x.current, x.next = header{Lineage: 1}, 1
			m.ranks = append(m.ranks, x)
		}
		var whole int64 // the newest step that a rank knows to be whole
		for range 6 {
			last := 100
			if r.IntN(2) == 0 {
				last = r.IntN(n * (k + 2))
			}
			if m.save(last) {
				whole = m.step
			}
			if last == 100 && r.IntN(2) == 0 {
				continue
			}
			for range min(k, n-1) { // as many as Partners promises
				m.ranks[r.IntN(n)] = newMember()
			}
			var held []holding
			var next uint64
			for rank, x := range m.ranks {
				held = append(held, x.own.holdings(rank)...)
				for _, c := range x.held {
					held = append(held, c.holdings(rank)...)
				}
				next = max(next, x.next)
			}
			r.Shuffle(len(held), func(i, j int) { held[i], held[j] = held[j], held[i] })
			for _, h := range held {
				next = max(next, h.Header.Number+1)
			}
			c := choose(n, held)
			if c.lost != nil {
				t.Fatalf("seed %d: lost %v", seed, c.lost)
			}
			if c.Step < whole {
				t.Fatalf("seed %d: step %d is restored, and %d was whole", seed, c.Step, whole)
			}
			// The ranks without their own slices get them, and all begin with the same.
			for rank, x := range m.ranks {
				x.current, x.next = c.header, next
				if c.Number == 0 {
					*x = *newMember()
					x.current, x.next = header{Lineage: 2 + uint64(m.step)}, 1
					continue
				}
				s := x.own.find(c.Lineage, c.Number)
				if from := c.from[rank]; from != rank {
					s = m.ranks[from].held[rank].find(c.Lineage, c.Number)
					h := s.header
					fill(&x.own, header{}, h)
				}
				if s.data[headerSize] != byte(c.Step) {
					t.Fatalf("seed %d: rank %d has step %d, not %d", seed, rank, s.data[headerSize], c.Step)
				}
			}
			if whole = c.Step; c.Number == 0 {
				whole = 0
				continue
			}
			if m.save(100) {
				whole = m.step
			}
		}
	}
}

func TestLost(t *testing.T) {
	h := func(owner, holder int, number, before uint64) holding {
		return holding{header{Lineage: 1, Number: number, Before: before, Owner: uint32(owner), Size: 3}, holder}
	}
	// Rank 1 and its partner are gone: rank 2 held only copies of rank 0.
	if c := choose(3, []holding{h(0, 0, 2, 1), h(2, 2, 2, 1), h(0, 2, 2, 1)}); !slices.Equal(c.lost, []int{1}) {
		t.Errorf("lost: %v", c.lost)
	}
	// The same in the first Save: nothing was ever whole.
	if c := choose(3, []holding{h(0, 0, 1, 0), h(2, 2, 1, 0)}); c.lost != nil || c.Number != 0 {
		t.Errorf("%+v", c)
	}
	// An older row does not help, and does no harm.
	old := header{Lineage: 0, Number: 9, Before: 8, Size: 3}
	if c := choose(3, []holding{{old, 0}, h(0, 0, 1, 0)}); c.lost != nil || c.Number != 0 {
		t.Errorf("%+v", c)
	}
}
