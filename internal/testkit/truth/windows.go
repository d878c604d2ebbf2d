package truth

import (
	"errors"
	"fmt"
	"math/rand/v2"

	"github.com/gorun-mpi/mpi"
)

// WindowDeath is a random program on one window, in which a rank dies. Each of the others checks that every call ends,
// with ErrPeerFailed if with an error, and that no value is wrong: of the words that one rank alone changes, of those
// that ranks change in exclusive locks, and of long blocks.
type WindowDeath struct {
	Seed   uint64
	Create bool   // WinCreate, not WinAlloc
	Die    func() // ends the victim for the others; it may return
}

const (
	deathSteps = 40
	blockLen   = 2000 // of int64: more than a request has
	tagCounts  = 77
)

// String says what the program is.
func (p *WindowDeath) String() string {
	_, way, victim, step := p.plan(4)
	return fmt.Sprintf("seed %d: %s; of 4 ranks, rank %d dies in step %d; WinCreate %v", p.Seed, ways[way],
		victim, step, p.Create)
}

var ways = [...]string{"locks", "fences", "groups"}

// plan is what all ranks know.
func (p *WindowDeath) plan(ranks int) (r *rand.Rand, way, victim, step int) {
	r = rand.New(rand.NewPCG(p.Seed, 0))
	way = [...]int{0, 0, 1, 2}[r.IntN(4)]
	return r, way, r.IntN(ranks), r.IntN(deathSteps)
}

// mortal is a rank of the program.
type mortal struct {
	*rand.Rand
	*WindowDeath
	w       *mpi.Comm
	win     *mpi.Win[int64]
	n, me   int
	dies    int // the step in which this rank dies; -1: none
	at      int // the point of that step
	targets []target
}

// target is what a rank knows of its own word at another rank.
type target struct {
	done, tried int64 // the word is from done to tried when nothing is under way
	under       int64 // of tried, accumulates that are not known to be complete
	common      int64 // the last value that it has fetched of the word of all ranks
	block       int64 // the value of its own block; 0: not known
}

// died ends a rank.
type died struct{}

// Run runs the program, and reports what is wrong. It returns nil at the rank that has died.
func (p *WindowDeath) Run(w *mpi.Comm) (err error) {
	m := &mortal{WindowDeath: p, w: w, n: w.Size(), me: w.Rank(), dies: -1, targets: make([]target, w.Size())}
	shared, way, victim, step := p.plan(m.n)
	m.Rand = rand.New(rand.NewPCG(p.Seed, 1+uint64(m.me)))
	if m.me == victim {
		m.dies, m.at = step, m.IntN(4)
	}
	for i := range m.targets {
		m.targets[i].common = -1
	}
	words := m.n + 3 + m.n*blockLen
	if p.Create {
		m.win, err = mpi.WinCreate(w, make([]int64, words))
	} else {
		m.win, err = mpi.WinAlloc[int64](w, words)
	}
	if err != nil {
		return err
	}
	defer func() {
		switch e := recover().(type) {
		case nil:
		case died:
			err = nil
		case error:
			err = fmt.Errorf("%v, rank %d: %w", p, m.me, e)
		default:
			panic(e)
		}
	}()
	for i := range deathSteps {
		m.point(i, 0)
		over := false
		switch way {
		case 0:
			m.locks(i)
		case 1:
			over = !m.fences(i) // no Fence of all ranks can be any more
		default:
			m.groups(i, 1+shared.IntN(m.n-1))
		}
		m.point(i, m.at) // the step may have had no such point
		if over {
			break
		}
	}
	m.counts(victim)
	m.failed(m.win.Free())
	return nil
}

// point is one at which the victim may die.
func (m *mortal) point(step, at int) {
	if step == m.dies && at == m.at {
		m.Die()
		panic(died{})
	}
}

// failed reports whether a call has failed. Any error but ErrPeerFailed is wrong.
func (m *mortal) failed(err error) bool {
	if err != nil && !errors.Is(err, mpi.ErrPeerFailed) {
		panic(err)
	}
	return err != nil
}

func wrong(format string, args ...any) { panic(fmt.Errorf(format, args...)) }

func (m *mortal) locks(step int) {
	if m.IntN(3) == 0 {
		if m.failed(m.win.LockAll()) {
			return
		}
		for range m.IntN(4) {
			to := m.IntN(m.n)
			m.operation(to, true)
			if m.IntN(3) == 0 && !m.failed(m.win.Flush(to)) {
				m.complete(to)
			}
		}
		m.point(step, 1)
		m.point(step, 2)
		m.point(step, 3)
		if !m.failed(m.win.UnlockAll()) {
			for to := range m.n {
				m.complete(to)
			}
		}
		return
	}
	to, mode := m.IntN(m.n), mpi.Shared+mpi.LockMode(m.IntN(2))
	if m.failed(m.win.Lock(to, mode)) {
		return
	}
	m.point(step, 1)
	if mode == mpi.Exclusive {
		m.pair(step, to)
	}
	m.operation(to, true)
	m.point(step, 3)
	if !m.failed(m.win.Unlock(to)) {
		m.complete(to)
	}
}

// pair changes two words that are the same whenever a rank has the lock.
func (m *mortal) pair(step, to int) {
	at, v := int64(m.n+1), make([]int64, 2)
	if m.failed(m.win.Get(v, to, at)) || m.failed(m.win.Flush(to)) {
		return
	}
	if v[0] != v[1] {
		wrong("rank %d has left the lock of rank %d with words %v", m.me, to, v)
	}
	if m.failed(m.win.Put([]int64{v[0] + 1}, to, at)) {
		return
	}
	m.point(step, 2)
	m.failed(m.win.Put([]int64{v[0] + 1}, to, at+1))
}

func (m *mortal) fences(step int) (on bool) {
	if m.failed(m.win.Fence()) {
		return false
	}
	for range m.IntN(4) {
		m.operation(m.IntN(m.n), false)
	}
	m.point(step, 1)
	m.point(step, 2)
	m.point(step, 3)
	if m.failed(m.win.Fence()) {
		return false
	}
	for to := range m.n {
		m.complete(to)
	}
	return true
}

func (m *mortal) groups(step, distance int) {
	to, from := (m.me+distance)%m.n, (m.me+m.n-distance)%m.n
	targets, err := m.win.Group().Incl(to)
	if err != nil {
		panic(err)
	}
	origins, err := m.win.Group().Incl(from)
	if err != nil {
		panic(err)
	}
	m.failed(m.win.Post(origins))
	m.point(step, 1)
	if !m.failed(m.win.Start(targets)) { // else it has opened no epoch
		for range m.IntN(4) {
			m.operation(to, false)
		}
		m.point(step, 2)
		if !m.failed(m.win.Complete()) {
			m.complete(to)
		}
	}
	m.point(step, 3)
	m.failed(m.win.Wait()) // the epoch is over
}

// complete is called when the operations at a rank are.
func (m *mortal) complete(to int) {
	t := &m.targets[to]
	t.done, t.under = t.done+t.under, 0
}

// operation makes one at a rank. flushes: the epoch allows Flush.
func (m *mortal) operation(to int, flushes bool) {
	t := &m.targets[to]
	switch kind := m.IntN(5); {
	case kind == 0:
		if t.tried++; !m.failed(m.win.Accumulate(mpi.Sum, []int64{1}, to, int64(m.me))) {
			t.under++
		}
	case kind == 1:
		v, err := m.win.FetchOp(mpi.Sum, 1, to, int64(m.n))
		if m.failed(err) {
			return
		}
		if v <= t.common {
			wrong("the word of all ranks at rank %d was %d and is %d", to, t.common, v)
		}
		t.common = v
	case kind == 2 && flushes:
		m.block(to)
	default:
		t.tried++
		v, err := m.win.FetchOp(mpi.Sum, 1, to, int64(m.me))
		if m.failed(err) {
			return
		}
		if v < t.done+t.under || v >= t.tried {
			wrong("a word of rank %d is %d after %d complete additions, %d at most", to, v, t.done+t.under, t.tried-1)
		}
		t.done, t.under = v+1, 0
	}
}

// block writes a long block and reads it.
func (m *mortal) block(to int) {
	t, at, buf := &m.targets[to], int64(m.n+3+m.me*blockLen), make([]int64, blockLen)
	if t.block != 0 {
		if m.failed(m.win.Get(buf, to, at)) || m.failed(m.win.Flush(to)) {
			return
		}
		for i, v := range buf {
			if v != t.block {
				wrong("element %d of a block at rank %d is %d, not %d", i, to, v, t.block)
			}
		}
	}
	next := t.block + 1
	for i := range buf {
		buf[i] = next
	}
	if t.block = 0; m.failed(m.win.Put(buf, to, at)) || m.failed(m.win.Flush(to)) {
		return
	}
	t.block = next
}

// counts compares the words of this rank with what the others know of them.
func (m *mortal) counts(victim int) {
	for other := range m.n {
		if other == victim || other == m.me {
			continue
		}
		t, has := &m.targets[other], make([]int64, 2)
		if _, err := mpi.Sendrecv(m.w, []int64{t.done, t.tried}, other, tagCounts, has, other, tagCounts); err != nil {
			panic(err)
		}
		if v := m.win.Local()[other]; v < has[0] || v > has[1] {
			wrong("the word of rank %d is %d here, after %d complete additions, %d at most", other, v, has[0], has[1])
		}
	}
}
