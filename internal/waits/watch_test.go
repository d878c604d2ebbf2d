package waits

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// A model of a job: each rank does the steps of its program in turn. A message takes any time from one rank to another.
type step struct {
	kind    byte // 's' end, 'r' receive, 'c' ompute
	peer    int
	sync    bool // of a send: it is over when the message has been received
	started bool
}

type model struct {
	programs [][]step
	flying   map[[2]int]int // from, to: sent and not come
	queued   map[[2]int]int // come and not received
	sent     []uint64
	taken    []uint64
	done     []uint64 // operations
	matched  map[[2]int]int
}

func newModel(programs [][]step) *model {
	n := len(programs)
	return &model{programs, map[[2]int]int{}, map[[2]int]int{}, make([]uint64, n), make([]uint64, n), make([]uint64, n),
		map[[2]int]int{}}
}

// moves are what can happen next: a function for each.
func (m *model) moves() (all []func()) {
	for pair, n := range m.flying {
		if n > 0 {
			all = append(all, func() { m.flying[pair]--; m.queued[pair]++; m.taken[pair[1]]++ })
		}
	}
	for rank := range m.programs {
		if f := m.next(rank); f != nil {
			all = append(all, f)
		}
	}
	return all
}

// next is what a rank can do by itself; nil: it waits, or has ended.
func (m *model) next(rank int) func() {
	if len(m.programs[rank]) == 0 {
		return nil
	}
	s := &m.programs[rank][0]
	over := func() { m.programs[rank] = m.programs[rank][1:]; m.done[rank]++ }
	to, from := [2]int{rank, s.peer}, [2]int{s.peer, rank}
	switch {
	case s.kind == 'c':
		return over
	case s.kind == 's' && !s.started:
		return func() {
			m.flying[to]++
			m.sent[rank]++
			if s.started = true; !s.sync {
				over()
			}
		}
	case s.kind == 's' && m.matched[to] > 0:
		return func() { m.matched[to]--; over() }
	case s.kind == 'r' && m.queued[from] > 0:
		return func() {
			m.queued[from]--
			if p := m.programs[s.peer]; len(p) > 0 && p[0].kind == 's' && p[0].peer == rank && p[0].started {
				m.matched[from]++
			}
			over()
		}
	}
	return nil
}

// account is what a rank says of itself. A rank that could go on may say that it stands: it has not looked yet at what
// has come. One that computes never does.
func (m *model) account(rank int) Account {
	p := m.programs[rank]
	waits := len(p) > 0 && (p[0].kind == 'r' || p[0].started)
	taken := m.taken[rank]
	return Account{Stands: waits || len(p) == 0, Moved: m.done[rank] + m.sent[rank] + taken, Sent: m.sent[rank],
		Taken: taken}
}

// run lets the model and a watch go on, in any order, with each rank's account taken at any time. It returns whether
// the watch said that no rank can move, and whether that was true.
func (m *model) run(r *rand.Rand, w *Watch, turns int) (said, right bool) {
	now := time.Unix(0, 0)
	var ranks []int
	for rank := range m.programs {
		ranks = append(ranks, rank)
	}
	step := func(n int) {
		for range n {
			if all := m.moves(); len(all) > 0 {
				all[r.IntN(len(all))]()
			}
		}
	}
	for range turns {
		step(r.IntN(3))
		now = now.Add(w.Limit / 16)
		rank, level, ok := w.Next(ranks)
		if !ok {
			continue
		}
		got := map[int]Account{}
		for _, k := range r.Perm(len(ranks)) {
			if rank == Any || rank == k {
				if got[k] = m.account(k); level > Glance {
					step(r.IntN(2)) // before the next rank answers
				}
			}
		}
		if w.Hear(now, ranks, got) {
			return true, len(m.moves()) == 0
		}
	}
	return false, false
}

// clone copies a model's start.
func clone(programs [][]step) (c [][]step) {
	for _, p := range programs {
		c = append(c, slices.Clone(p))
	}
	return c
}

// In random programs that may or may not get stuck, the watch speaks only when nothing can move, and speaks when a rank
// waits for ever.
func TestWatchOfRandomPrograms(t *testing.T) {
	seeds := uint64(20000)
	if testing.Short() {
		seeds = 2000
	}
	for seed := range seeds {
		r := rand.New(rand.NewPCG(seed, 1))
		n := 2 + r.IntN(4)
		programs := make([][]step, n)
		for range r.IntN(20) { // messages that go together
			from := r.IntN(n)
			to := (from + 1 + r.IntN(n-1)) % n
			programs[from] = append(programs[from], step{kind: 's', peer: to, sync: r.IntN(2) == 0})
			programs[to] = append(programs[to], step{kind: 'r', peer: from})
			if r.IntN(3) == 0 {
				k := r.IntN(n)
				programs[k] = append(programs[k], slices.Repeat([]step{{kind: 'c'}}, r.IntN(40))...)
			}
		}
		sound := seed%2 == 0
		if !sound { // and some that do not
			for range 1 + r.IntN(2) {
				if k := r.IntN(n); len(programs[k]) > 0 {
					programs[k] = slices.Delete(programs[k], 0, 1)
				}
			}
		}
		m := newModel(clone(programs))
		said, right := m.run(r, &Watch{Limit: 16 * time.Second}, 2000)
		stuck := slices.ContainsFunc(m.programs, func(p []step) bool { return len(p) > 0 })
		switch {
		case said && !right:
			t.Fatalf("seed %d: the watch says that no rank can move, and one can: %+v", seed, m)
		case sound && stuck:
			t.Fatalf("seed %d: a sound program is stuck: %+v", seed, m.programs)
		case stuck && !said:
			t.Fatalf("seed %d: ranks are stuck, and the watch does not say so: %+v", seed, m.programs)
		}
	}
}

// A rank that does not answer, or that computes in another goroutine, does not stand; and the others are left alone.
func TestWatchLeavesRanksAlone(t *testing.T) {
	w, ranks, now, looks := &Watch{Limit: time.Second}, []int{0, 1, 2}, time.Unix(0, 0), 0
	for range 1000 {
		now = now.Add(time.Second / 16)
		rank, level, ok := w.Next(ranks)
		if !ok {
			continue
		}
		got := map[int]Account{0: {Stands: true}, 1: {Stands: true}, 2: {Stands: level == Glance}}
		if rank == Any {
			looks++
		}
		if w.Hear(now, ranks, got) {
			t.Fatal("rank 2 does not stand")
		}
	}
	if looks > 100 {
		t.Errorf("%d looks at all ranks in 1000 turns", looks)
	}
	for range 100 {
		if rank, _, ok := w.Next(ranks); ok && w.Hear(now, ranks, map[int]Account{rank: {}}) {
			t.Fatal("ranks that do not answer do not stand")
		}
		now = now.Add(time.Second)
	}
}

// After a pause of everything, such as Ctrl-Z, one look that agrees with an old one is not enough.
func TestWatchAfterAPause(t *testing.T) {
	w, ranks, now, looks := &Watch{Limit: time.Second}, []int{0, 1}, time.Unix(0, 0), 0
	for range 100 {
		rank, _, _ := w.Next(ranks)
		if rank == Any {
			looks++
			now = now.Add(time.Hour)
		}
		if w.Hear(now, ranks, map[int]Account{0: {Stands: true}, 1: {Stands: true}}) {
			break
		}
	}
	if looks != leastLooks {
		t.Errorf("it speaks after %d looks, want %d", looks, leastLooks)
	}
}

// A message that is under way, or a count that moves, is enough for silence, however long it lasts.
func TestWatchIsSilent(t *testing.T) {
	for name, sent := range map[string]uint64{"moves": 0, "a message is under way": 1} {
		w, ranks := &Watch{Limit: time.Second}, []int{0, 1}
		for turn := range 200 {
			a := Account{Stands: true, Sent: sent}
			rank, _, ok := w.Next(ranks)
			if sent == 0 && rank == Any {
				a.Moved = uint64(turn)
			}
			if !ok {
				continue
			}
			if w.Hear(time.Unix(int64(turn), 0), ranks, map[int]Account{0: a, 1: {Stands: true}}) {
				t.Errorf("%s: it says that no rank can move", name)
				break
			}
		}
	}
}
