package truth

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"

	"github.com/gorun-mpi/mpi"
	"github.com/gorun-mpi/mpi/collectives"
)

// Random is a program that follows from a seed: collective calls of all kinds on communicators that are split and
// freed, with calls and messages between ranks in flight. All ranks know the program; that is the model which says what
// each of them gets.
type Random struct {
	Seed    uint64
	Steps   int
	Threads int // of the program that run at once, each with communicators of its own
	// Mistakes: one rank makes some of the calls wrongly. All ranks of such a call must hear of it, and nothing else
	// may suffer. It needs GORUN_COLL_CHECK.
	Mistakes bool

	mu    sync.Mutex
	doing map[string]string // what the threads of the ranks of this process do
}

// Run runs it at one rank. It returns when a thread has found an error: the others may wait for that one for ever.
func (r *Random) Run(w *mpi.Comm) error {
	errs := make(chan error, r.Threads)
	for i := range r.Threads {
		c, err := w.Dup()
		if err != nil {
			return err
		}
		p := program{Random: r, name: fmt.Sprintf("rank %d, program %d", w.Rank(), i), world: c.Rank(),
			random: rand.New(rand.NewPCG(r.Seed, uint64(i)))}
		members := make([]int, c.Size())
		for i := range members {
			members[i] = i
		}
		p.groups = []group{{c, members}}
		go func() {
			err := p.run()
			if err != nil {
				err = fmt.Errorf("seed %d, %s, step %d, %s: %w", r.Seed, p.name, p.step, p.what, err)
			}
			errs <- err
		}()
	}
	for range r.Threads {
		if err := <-errs; err != nil {
			return err
		}
	}
	return nil
}

// String says what each thread does.
func (r *Random) String() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := fmt.Sprintf("seed %d", r.Seed)
	for _, name := range slices.Sorted(maps.Keys(r.doing)) {
		s += fmt.Sprintf("\n%s: %s", name, r.doing[name])
	}
	return s
}

// group is a communicator. All ranks know who its members are; comm is nil at the others.
type group struct {
	comm    *mpi.Comm
	members []int // by their ranks in the first communicator
}

// flight is what is under way at this rank.
type flight struct {
	on     *mpi.Comm
	finish func() error
}

// program is one rank's view of it. Each rank throws the same dice, also where it is not in the group.
type program struct {
	*Random
	name    string
	world   int // this rank
	random  *rand.Rand
	groups  []group
	flights []flight
	step    int
	what    string // it does
}

func (p *program) does(format string, args ...any) {
	p.what = fmt.Sprintf(format, args...)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.doing == nil {
		p.doing = map[string]string{}
	}
	p.doing[p.name] = fmt.Sprintf("step %d, %s", p.step, p.what)
}

const (
	mostGroups  = 8
	mostFlights = 20
)

func (p *program) run() error {
	for p.step = range p.Steps {
		var err error
		switch dice := p.random.IntN(100); {
		case dice < 50:
			err = p.call()
		case dice < 75:
			err = p.message()
		case dice < 85:
			err = p.split()
		case dice < 90:
			err = p.free()
		default:
			p.does("waiting")
			err = p.land(p.random.IntN(mostFlights))
		}
		if err == nil && len(p.flights) > mostFlights {
			err = p.land(mostFlights / 2)
		}
		if err != nil {
			return err
		}
	}
	p.does("at the end")
	err := p.land(len(p.flights))
	for _, g := range p.groups {
		if g.comm != nil && err == nil {
			end := Call{Operation: collectives.Alltoall, Count: 1}
			err = errors.Join(end.Make(g.comm), g.comm.Free())
		}
	}
	return err
}

// land finishes so many of what is under way, in any order. Ranks have different things under way.
func (p *program) land(n int) error {
	order := rand.New(rand.NewPCG(uint64(p.step), uint64(p.world)))
	for range min(n, len(p.flights)) {
		i := order.IntN(len(p.flights))
		f := p.flights[i]
		p.flights = slices.Delete(p.flights, i, i+1)
		if err := f.finish(); err != nil {
			return err
		}
	}
	return nil
}

// pick is one of the groups.
func (p *program) pick() (int, group) {
	i := p.random.IntN(len(p.groups))
	return i, p.groups[i]
}

// length is mostly small, and now and then beyond limits of messages and of algorithms.
func (p *program) length() int {
	switch dice := p.random.IntN(20); {
	case dice < 12:
		return p.random.IntN(20)
	case dice < 19:
		return p.random.IntN(2000)
	}
	return p.random.IntN(40_000)
}

// call is a collective call of a group. With a context that has ended nothing is known of the result at this rank, and
// the call goes on.
func (p *program) call() error {
	_, g := p.pick()
	c := &Call{Operation: Operations[p.random.IntN(len(Operations))], Kind: p.random.IntN(len(kinds)),
		Operator: p.random.IntN(100), Ordered: p.random.IntN(4) == 0, InPlace: p.random.IntN(3) == 0,
		Root: p.random.IntN(len(g.members)), Count: p.length(), Way: Way(p.random.IntN(int(Ways))), Key: p.random.Uint64()}
	if !whole(c.Operation) {
		c.Count = (c.Count + len(g.members) - 1) / len(g.members)
	}
	if !InPlace(c.Operation) {
		c.InPlace = false
	}
	leaver, withContext := -1, p.random.IntN(8) == 0
	if p.random.IntN(10) == 0 && p.step < p.Steps/2 { // at the end nothing may be under way in the background
		leaver = g.members[p.random.IntN(len(g.members))]
	}
	if leaver >= 0 && c.Way == Persistent && !c.InPlace {
		c.Way = Nonblocking // the call is made twice, and a context ends once
	}
	p.does("%v on ranks %v", c, g.members)
	var s *slip
	if p.Mistakes && len(g.members) > 1 && p.random.IntN(4) == 0 {
		s = p.slip(c, g)
		p.does("%v on ranks %v, while rank %d of them makes %v", c, g.members, s.odd, s)
	}
	switch {
	case g.comm == nil:
		return nil
	case s != nil:
		return p.wrong(c, g, s, leaver)
	case leaver == p.world:
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		err := c.Make(g.comm.WithContext(ctx))
		if complete := err == nil && c.Way != Blocking; !complete && !errors.Is(err, context.Canceled) {
			return fmt.Errorf("with a context that has ended: %w", err)
		}
		return nil
	case withContext:
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		return c.Make(g.comm.WithContext(ctx))
	}
	f, err := c.Start(g.comm)
	if err == nil {
		p.flights = append(p.flights, flight{g.comm, f.Finish})
	}
	return err
}

// message is one between two ranks of a group, which is received some time.
func (p *program) message() error {
	_, g := p.pick()
	from, to := p.random.IntN(len(g.members)), p.random.IntN(len(g.members))
	tag, n, key, any := p.random.IntN(1000), p.length(), p.random.Uint64(), p.random.IntN(4) == 0
	p.does("%d bytes from %d to %d of ranks %v", n, from, to, g.members)
	if g.comm == nil {
		return nil
	}
	r := &ranks[byte]{kind: &octets, call: &Call{Key: key}, me: g.comm.Rank(), size: g.comm.Size()}
	tag += 1000 * p.step // of this message only
	if r.me == to {
		buf, source := r.blank(n), from
		if any {
			source = mpi.AnySource
		}
		q, err := mpi.Irecv(g.comm, buf, source, tag)
		if err != nil {
			return err
		}
		p.flights = append(p.flights, flight{g.comm, func() error {
			st, err := q.Wait()
			if err == nil && (st.Source != from || st.Tag != tag) {
				err = fmt.Errorf("from rank %d with tag %d, not from %d with %d", st.Source, st.Tag, from, tag)
			}
			if err == nil {
				err = expectation[byte]{"a message", buf, func() []byte { return r.block(from, to, n) }}.check()
			}
			return err
		}})
	}
	if r.me == from {
		q, err := mpi.Isend(g.comm, r.block(from, to, n), to, tag)
		if err != nil {
			return err
		}
		p.flights = append(p.flights, flight{g.comm, func() error { _, err := q.Wait(); return err }})
	}
	return nil
}

// split makes communicators of the members of a group.
func (p *program) split() error {
	_, g := p.pick()
	colors, salt := 1+p.random.IntN(3), p.random.Uint64()
	p.does("splitting ranks %v", g.members)
	if len(p.groups)+colors > mostGroups {
		return nil
	}
	made := make([]group, colors)
	place := func(i int) (color, key int) {
		h := mix(salt, uint64(i))
		return int(h % uint64(colors)), int(h >> 32 % 5)
	}
	for color := range made {
		type member struct{ rank, key int }
		var all []member
		for i, m := range g.members {
			if its, key := place(i); its == color {
				all = append(all, member{m, key})
			}
		}
		slices.SortStableFunc(all, func(a, b member) int { return a.key - b.key })
		for _, m := range all {
			made[color].members = append(made[color].members, m.rank)
		}
	}
	if p.Mistakes && len(g.members) > 1 && p.random.IntN(4) == 0 {
		return p.splitWrongly(g, place)
	}
	if g.comm != nil {
		color, key := place(g.comm.Rank())
		c, err := g.comm.Split(color, key)
		if err != nil {
			return err
		}
		made[color].comm = c
		if want := slices.Index(made[color].members, p.world); c.Rank() != want || c.Size() != len(made[color].members) {
			return fmt.Errorf("rank %d of %d, want %d of %d", c.Rank(), c.Size(), want, len(made[color].members))
		}
	}
	for _, g := range made {
		if len(g.members) > 0 {
			p.groups = append(p.groups, g)
		}
	}
	return nil
}

// free frees a communicator, after what is under way on it.
func (p *program) free() error {
	i, g := p.pick()
	if i == 0 {
		return nil
	}
	p.does("freeing ranks %v", g.members)
	p.groups = slices.Delete(p.groups, i, i+1)
	if g.comm == nil {
		return nil
	}
	var others []flight
	for _, f := range p.flights {
		if f.on != g.comm {
			others = append(others, f)
		} else if err := f.finish(); err != nil {
			return err
		}
	}
	p.flights = others
	return g.comm.Free()
}
