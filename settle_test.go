package mpi

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/gorun-mpi/mpi/internal/wire"
	"github.com/gorun-mpi/mpi/transport"
)

// mortals are ranks of which some die: what one of these sends is lost from then on, and the others are told.
type mortals struct {
	mu     sync.Mutex
	all    sync.WaitGroup
	worlds []*Comm
	left   []atomic.Int64 // how many packets each rank still sends; below 0 it is dead
	died   []chan struct{}
}

func newMortals(n int) *mortals {
	m := &mortals{worlds: make([]*Comm, n), left: make([]atomic.Int64, n)}
	m.all.Add(n)
	for r := range n {
		m.left[r].Store(1 << 40)
		m.died = append(m.died, make(chan struct{}))
	}
	return m
}

// live is called by each rank before one dies.
func (m *mortals) live(w *Comm) {
	m.mu.Lock()
	m.worlds[w.Rank()] = w
	m.mu.Unlock()
	m.all.Done()
	m.all.Wait()
}

// dies is death, as gorun tells of it.
func (m *mortals) dies(rank int) {
	m.worlds[rank].eng.Close(opError("", ErrAborted, "this rank is dead"))
	for r, w := range m.worlds {
		if r != rank {
			w.eng.EnsureLink(rank)
		}
	}
	close(m.died[rank])
}

func (m *mortals) option() Option {
	return withDevices(func(rank int, d transport.Device) transport.Device {
		facts := *d.Facts()
		facts.Short, facts.ConnectNow = nil, nil
		return &mortal{d, m, rank, &facts}
	})
}

type mortal struct {
	transport.Device
	of    *mortals
	rank  int
	facts *transport.Facts
}

func (d *mortal) Facts() *transport.Facts { return d.facts }

func (d *mortal) Connect(ctx context.Context, peer int, address []byte) (transport.Link, error) {
	l, err := d.Device.Connect(ctx, peer, address)
	if err != nil {
		return nil, err
	}
	return &mortalLink{l, d}, nil
}

type mortalLink struct {
	transport.Link
	d *mortal
}

func (l *mortalLink) TrySend(h *wire.Header, payload []byte) bool {
	switch left := l.d.of.left[l.d.rank].Add(-1); {
	case left == -1:
		go l.d.of.dies(l.d.rank)
		return true
	case left < 0:
		return true
	}
	return l.Link.TrySend(h, payload)
}

// makers are the calls that make communicators of c, or (nil) of two groups of its ranks.
var makers = []struct {
	name string
	make func(c *Comm) (*Comm, error)
}{
	{"Dup", func(c *Comm) (*Comm, error) { return c.Dup() }},
	{"Split", func(c *Comm) (*Comm, error) { return c.Split(c.Rank()%2, 0) }},
	{"Create", func(c *Comm) (*Comm, error) { return c.Create(ok(c.Group().Incl(3, 1, 2))) }},
	{"CreateGroup", func(c *Comm) (*Comm, error) { return c.CreateGroup(c.Group(), 3) }},
	{"Cart", func(c *Comm) (*Comm, error) { return c.Cart([]int{2, 2}, []bool{true, false}, true) }},
	{"Graph", func(c *Comm) (*Comm, error) { return c.Graph([][]int{{1}, {0}, {3}, {2}}) }},
	{"DistGraphAdjacent", func(c *Comm) (*Comm, error) {
		n := c.Size()
		return c.DistGraphAdjacent([]int{(c.Rank() + n - 1) % n}, []int{(c.Rank() + 1) % n})
	}},
	{"DistGraph", func(c *Comm) (*Comm, error) {
		n := c.Size()
		return c.DistGraph(Edge{(c.Rank() + 1) % n, (c.Rank() + 2) % n}, Edge{(c.Rank() + 3) % n, c.Rank()})
	}},
	{"Dup of late numbers", func(c *Comm) (*Comm, error) { return c.Dup() }}, // which are made free
	{"Intercomm", nil},
	{"Merge", nil},
}

// §7.4: after a rank has died the others make communicators of theirs in any way. When another one dies meanwhile, at
// any step, all that are left have the communicator, and it works, or none has.
func TestCommunicatorsOfSurvivors(t *testing.T) {
	each, turn := inShort(1, 9), 0
	for _, check := range []string{"GORUN_COLL_CHECK=0", "GORUN_COLL_CHECK=1"} {
		for _, maker := range makers {
			t.Run(maker.name+"/"+check, func(t *testing.T) {
				for victim := range 4 {
					for step := int64(0); step < 60; step++ {
						if turn++; turn%each != 0 && step > 0 {
							continue
						}
						if !diesWhileMaking(t, maker.name, maker.make, check, victim, step) {
							break // all is over before
						}
					}
				}
			})
		}
	}
}

// diesWhileMaking reports whether the victim has died.
func diesWhileMaking(t *testing.T, name string, make func(*Comm) (*Comm, error), check string, victim int,
	step int64) (died bool) {
	const n = 5
	m := newMortals(n)
	what := fmt.Sprintf("%s, %s, rank %d dies after %d packets", name, check, victim, step)
	var mu sync.Mutex
	made, errs := map[int]*Comm{}, map[int]error{}
	var ready, all sync.WaitGroup
	ready.Add(n - 1)
	all.Add(n - 2)
	over(t, loopBeneath, m.option(), WithEnviron([]string{check}))(n, func(w *Comm) {
		if name == "Dup of late numbers" {
			fewNumbers(w, 4)
		}
		m.live(w)
		if w.Rank() == n-1 {
			m.dies(n - 1)
			return
		}
		<-m.died[n-1]
		c := ok(w.CreateGroup(ok(w.Group().Excl(n-1)), 1))
		var inter *Comm
		half := ok(c.Split(c.Rank()%2, 0))
		peer := 1 - c.Rank()%2
		switch name {
		case "Merge":
			inter = ok(half.Intercomm(0, c, peer, 1))
		case "Dup of late numbers":
			must(ok(c.Dup()).Free())
		}
		ready.Done()
		ready.Wait()
		if w.Rank() == victim {
			m.left[victim].Store(step)
		}
		var d *Comm
		var err error
		switch name {
		case "Intercomm":
			d, err = half.Intercomm(1, c, 2+peer, 2)
		case "Merge":
			d, err = inter.Merge(c.Rank()%2 == 0)
		default:
			d, err = make(c)
		}
		if w.Rank() == victim {
			if m.left[victim].Load() < 0 {
				<-m.died[victim]
			}
			return
		}
		mu.Lock()
		made[w.Rank()], errs[w.Rank()] = d, err
		mu.Unlock()
		all.Done()
		all.Wait() // which is outside of the library: a rank that waits here answers all the same
		for r, other := range errs {
			if (other == nil) != (err == nil) {
				panic(fmt.Errorf("%s: at rank %d the error is %v, and at rank %d %v", what, w.Rank(), err, r, other))
			}
		}
		if err != nil {
			is(err, ErrPeerFailed)
			return
		}
		worksAmong(d, made)
	})
	return m.left[victim].Load() < 0
}

// A rank that has returned answers asks, and no survivor takes it for dead that waits for the answer, however long that
// takes: here until other waits for the rank have ended.
func TestAnswerOfARankThatHasReturned(t *testing.T) {
	const id = 7
	claimed := make(chan *contextIDs, 1)
	over(t, loopBeneath)(2, func(w *Comm) {
		if w.Rank() == 1 {
			w.ids.decide(id, ballotRound, isMade)
			w.ids.mu.Lock() // which keeps it from answering
			claimed <- w.ids
			return
		}
		ids, answered := <-claimed, make(chan result)
		ask := func() { answered <- w.ask(1, id, ballotOf(0), ranksOf()).answerOf(w, 1, id) }
		go ask()
		_, err := Recv(w, []byte{0}, 1, 1)
		returned(err, "rank 1")
		go ask() // of a rank that is known to have returned
		_, err = Recv(w, []byte{0}, 1, 1)
		returned(err, "rank 1")
		ids.mu.Unlock()
		for range 2 {
			same(<-answered, isMade)
		}
	})
}

// worksAmong exchanges messages of all ranks that have the communicator, and live.
func worksAmong(d *Comm, made map[int]*Comm) {
	if d == nil {
		return
	}
	var others []int
	for r := range d.size {
		if world := d.toWorld(r); made[world] != nil && world != int(d.me) {
			others = append(others, r)
		}
	}
	slices.Sort(others)
	for _, r := range others {
		must(Send(d, []int{int(d.me)}, r, 1))
	}
	for _, r := range others {
		got := []int{0}
		ok(Recv(d, got, r, 1))
		same(got[0], d.toWorld(r))
	}
}
