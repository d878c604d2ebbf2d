package mpi

import (
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gorun-mpi/mpi/internal/testkit/proc"
)

// A litmus program is a random legal program on one window. Ranks run it in phases; in a phase they synchronize by
// fences, by groups, or by locks. The program notes when each operation began and was complete, and its result. After a
// phase, a search looks for an order of the operations on each word in which a sequential machine has these results
// and leaves the word as it is (§12.7). In that order
//
//   - an operation that was complete before another one began comes first;
//   - the operations of one thread come as the program has them: a flush, or the order of accumulates (§12.7.2), is
//     between them;
//   - what a rank does in an exclusive lock is one step.
//
// GORUN_TEST_LITMUS=SEED runs the program of one seed, over each transport.
func TestLitmus(t *testing.T) {
	const variable = "GORUN_TEST_LITMUS"
	everyWindow(t, func(t *testing.T, run runner) {
		first, programs := uint64(crc32.ChecksumIEEE([]byte(t.Name()))), inShort(100, 4)
		if text := os.Getenv(variable); text != "" {
			first, programs = ok(strconv.ParseUint(text, 10, 64)), 1
		}
		for seed := first; seed < first+uint64(programs); seed++ {
			hint := fmt.Sprintf("to run this program again: %s=%d", variable, seed)
			stuck := time.AfterFunc(hangs*3/4, func() { fmt.Fprintf(os.Stderr, "%s: %s\n", t.Name(), hint) })
			runLitmus(run, seed, hint)
			stuck.Stop()
		}
	})
}

func runLitmus(run runner, seed uint64, hint string) {
	if seed%5 == 0 { // buffers that are kept too long are used again
		defer debug.SetGCPercent(debug.SetGCPercent(1))
	}
	switch seed % 7 {
	case 0:
		playLitmus(run, seed, hint, litmusIntegers[int8]())
	case 1:
		playLitmus(run, seed, hint, litmusIntegers[int32]())
	case 2:
		playLitmus(run, seed, hint, litmusIntegers[int64]())
	case 3:
		playLitmus(run, seed, hint, litmusIntegers[uint16]())
	case 4:
		playLitmus(run, seed, hint, litmusReals[float64]())
	case 5:
		playLitmus(run, seed, hint, litmusReals[float32]())
	default:
		k := litmusNumbers[complex128]()
		k.of, k.swap = func(n int) complex128 { return complex(float64(n), float64(-n)) }, false
		k.ops = k.ops[:3] // products are not exact, and some machines round them in another way
		playLitmus(run, seed, hint, k)
	}
}

// litmusElement is what a program needs of a type of elements. ops[0] is NoOp.
type litmusElement[T any] struct {
	of   func(int) T
	ops  []litmusOp[T]
	swap bool // CompareAndSwap is for it
}

// litmusOp is an operator, and what it makes of an element and an operand.
type litmusOp[T any] struct {
	name  string
	op    Op[T]
	model func(a, b T) T
}

func litmusNumbers[T Number]() litmusElement[T] {
	return litmusElement[T]{swap: true, ops: []litmusOp[T]{
		{"NoOp", NoOp[T], func(a, _ T) T { return a }},
		{"Replace", Replace[T], func(_, b T) T { return b }},
		{"Sum", Sum[T], func(a, b T) T { return a + b }},
		{"Prod", Prod[T], func(a, b T) T { return a * b }},
	}}
}

func litmusReals[T Real]() litmusElement[T] {
	k := litmusNumbers[T]()
	k.of = func(n int) T { return T(n) }
	k.ops = append(k.ops, litmusOp[T]{"Min", Min[T], func(a, b T) T { return min(a, b) }},
		litmusOp[T]{"Max", Max[T], func(a, b T) T { return max(a, b) }})
	return k
}

func litmusIntegers[T Integer]() litmusElement[T] {
	k := litmusReals[T]()
	truth := func(is bool) T {
		if is {
			return 1
		}
		return 0
	}
	k.ops = append(k.ops, litmusOp[T]{"BitAnd", BitAnd[T], func(a, b T) T { return a & b }},
		litmusOp[T]{"BitOr", BitOr[T], func(a, b T) T { return a | b }},
		litmusOp[T]{"BitXor", BitXor[T], func(a, b T) T { return a ^ b }},
		litmusOp[T]{"LogicalAnd", LogicalAnd[T], func(a, b T) T { return truth(a != 0 && b != 0) }},
		litmusOp[T]{"LogicalOr", LogicalOr[T], func(a, b T) T { return truth(a != 0 || b != 0) }},
		litmusOp[T]{"LogicalXor", LogicalXor[T], func(a, b T) T { return truth((a != 0) != (b != 0)) }})
	return k
}

const litmusReplace = 1 // of litmusElement.ops

// litmusWords is the greatest number of words that a rank has.
const litmusWords = 8

// litmus is a program.
type litmus struct {
	n        int   // ranks
	words    []int // that a rank has
	gap      int   // elements from a word to the next
	create   bool  // WinCreate, not WinAlloc
	reversed bool  // the window's ranks are the world's in reverse
	phases   []litmusPhase
}

type litmusSync uint8

const (
	byFence litmusSync = iota
	byGroups
	byLocks
)

func (s litmusSync) String() string { return [...]string{"fences", "groups", "locks"}[s] }

type litmusPhase struct {
	sync     litmusSync
	fresh    bool              // the ranks store other values first
	segments [][]litmusSegment // of each rank
	access   [][]bool          // byGroups: of an origin and a target
	all      []bool            // byLocks: the rank uses LockAll
	threads  [][][]litmusStep  // of each rank
	shuffle  uint64            // of the ranks in groups
}

// litmusUse says who does what with the words of a segment in a phase.
type litmusUse uint8

const (
	useReads    litmusUse = iota // all read
	useOwner                     // one thread does everything
	useAtomics                   // all update, with one operator
	useSections                  // exclusive locks: all words are read and written; other locks: reads
	useMixed                     // exclusive locks as before; other locks: atomics
)

type litmusSegment struct {
	from, to int // words
	use      litmusUse
	op       int    // of accumulates
	owner    [2]int // rank and thread
}

type litmusStep struct {
	kind     litmusDo
	target   int
	from, to int   // words
	op       int   // of accumulates
	values   []int // for each word
	compare  int   // of CompareAndSwap
	request  bool  // the form with a request
	local    bool  // in a section at this rank: by loads and stores
	yields   int   // how often other goroutines run in the middle, or behind
	mode     LockMode
}

type litmusDo uint8

const (
	doPut litmusDo = iota
	doGet
	doAccumulate
	doGetAccumulate
	doFetchOp
	doSwap     // CompareAndSwap
	doReadSwap // of what FetchOp has read
	doFlush
	doFlushAll
	doFlushLocal
	doFlushLocalAll
	doLock
	doUnlock
	doSection
	doReadSection
)

func (d litmusDo) String() string {
	return [...]string{"Put", "Get", "Accumulate", "GetAccumulate", "FetchOp", "CompareAndSwap", "read and swap",
		"Flush", "FlushAll", "FlushLocal", "FlushLocalAll", "Lock", "Unlock", "section", "read section"}[d]
}

// litmusMaker makes a program from a seed.
type litmusMaker struct {
	*rand.Rand
	*litmus
	ops   int // operators that there are
	swap  bool
	whole bool // all words of a rank are used in one way
	last  int  // value that was written
	phase *litmusPhase
}

func makeLitmus(seed uint64, ops int, swap bool, size int) *litmus {
	m := litmusMaker{Rand: newRand(seed, 0), litmus: &litmus{gap: 1}, ops: ops, swap: swap}
	m.n = 2 + m.IntN(4)
	m.create, m.reversed = m.IntN(2) == 0, m.IntN(4) == 0
	words := 1 + m.IntN(litmusWords)
	switch m.IntN(8) {
	case 0:
		m.gap = 9000 / size // two words are more than a request has
	case 1:
		m.gap, words = long/size, 1+m.IntN(3) // they go by rendezvous
	}
	// Atomic steps on elements of one or two bytes use four, which the race detector takes for accesses to neighbours.
	m.whole = proc.Race && size < 4 && m.gap == 1
	for range m.n {
		m.words = append(m.words, words)
		if m.IntN(6) == 0 {
			m.words[len(m.words)-1] = 0
		}
	}
	for range 2 + m.IntN(4) {
		m.phases = append(m.phases, litmusPhase{sync: litmusSync(m.IntN(3)), fresh: m.IntN(2) == 0, shuffle: m.Uint64()})
		m.phase = &m.phases[len(m.phases)-1]
		m.fill()
	}
	return m.litmus
}

// value is one that is written: the next one differs.
func (m *litmusMaker) value() int {
	m.last = m.last%100 + 1
	return m.last
}

func (m *litmusMaker) operand(op int) int {
	if op == litmusReplace {
		return m.value()
	}
	return 1 + m.IntN(3)
}

// fill makes the steps of a phase.
func (m *litmusMaker) fill() {
	p := m.phase
	threads := make([]int, m.n)
	for rank := range threads {
		threads[rank] = 1
		p.all = append(p.all, m.IntN(2) == 0)
		if p.sync == byLocks && p.all[rank] && m.n <= 3 {
			threads[rank] += m.IntN(2)
		}
	}
	for target := range m.n {
		var all []litmusSegment
		for at := 0; at < m.words[target]; {
			s := litmusSegment{from: at, to: at + 1 + m.IntN(m.words[target]-at), op: 1 + m.IntN(m.ops-1)}
			if m.whole {
				s.to = m.words[target]
			}
			s.use = litmusUse(m.IntN(3))
			if p.sync == byLocks {
				s.use = litmusUse(m.IntN(5))
			}
			owner := m.IntN(m.n)
			s.owner = [2]int{owner, m.IntN(threads[owner])}
			all, at = append(all, s), s.to
		}
		p.segments = append(p.segments, all)
		access := make([]bool, m.n)
		for i := range access {
			access[i] = m.IntN(3) > 0
		}
		p.access = append(p.access, access)
	}
	for rank := range m.n {
		var all [][]litmusStep
		for id := range threads[rank] {
			all = append(all, (&litmusWriter{litmusMaker: m, me: [2]int{rank, id}, open: map[[2]int]litmusDo{}}).write())
		}
		p.threads = append(p.threads, all)
	}
}

// litmusWriter makes the steps of a thread.
type litmusWriter struct {
	*litmusMaker
	me    [2]int              // rank and thread
	open  map[[2]int]litmusDo // of a rank and word: a Get, Put or Accumulate that is not known to be complete
	steps []litmusStep
}

func (w *litmusWriter) write() []litmusStep {
	if w.phase.sync != byLocks || w.phase.all[w.me[0]] {
		for range w.IntN(7) {
			if target := w.IntN(w.n); w.phase.sync != byGroups || w.phase.access[w.me[0]][target] {
				w.operation(target, Shared)
			}
		}
		return w.steps
	}
	for range w.IntN(4) {
		targets := []int{w.IntN(w.n)}
		if w.IntN(3) == 0 && !slices.Contains(w.phase.all, true) { // LockAll has no order of ranks
			targets = append(targets, w.IntN(w.n))
			slices.Sort(targets)
			targets = slices.Compact(targets)
		}
		modes := map[int]LockMode{}
		for _, t := range targets {
			modes[t] = Shared + LockMode(w.IntN(2))
			w.steps = append(w.steps, litmusStep{kind: doLock, target: t, mode: modes[t]})
		}
		for range 1 + w.IntN(3) {
			t := targets[w.IntN(len(targets))]
			w.operation(t, modes[t])
		}
		w.Shuffle(len(targets), func(i, j int) { targets[i], targets[j] = targets[j], targets[i] })
		for _, t := range targets {
			w.steps = append(w.steps, litmusStep{kind: doUnlock, target: t})
			w.closed(t, true)
		}
	}
	return w.steps
}

// closed is called behind a flush of a rank.
func (w *litmusWriter) closed(target int, remote bool) {
	for at, do := range w.open {
		if at[0] == target && (remote || do == doGet) {
			delete(w.open, at)
		}
	}
}

// operation adds an operation at a rank that the segments allow, or nothing.
func (w *litmusWriter) operation(target int, mode LockMode) {
	if w.words[target] == 0 {
		return
	}
	seg := w.phase.segments[target][w.IntN(len(w.phase.segments[target]))]
	s := litmusStep{target: target, from: seg.from, to: seg.to, yields: max(0, w.IntN(8)-4)}
	if seg.use < useSections {
		s.from += w.IntN(seg.to - seg.from)
		s.to = s.from + 1 + w.IntN(seg.to-s.from)
	}
	switch {
	case seg.use == useOwner && seg.owner != w.me:
		return
	case seg.use == useReads && w.IntN(3) > 0 || seg.use == useOwner && w.IntN(3) == 0:
		s.kind = doGet
	case seg.use == useOwner && w.IntN(2) == 0:
		s.kind = doPut
	case seg.use >= useSections && mode == Exclusive:
		s.kind, s.local = doSection, target == w.me[0] && w.IntN(2) == 0
	case seg.use == useSections:
		s.kind = doReadSection
	default:
		s.kind = doAccumulate + litmusDo(w.IntN(5))
	}
	if (s.kind == doSwap || s.kind == doReadSwap) && !w.swap {
		s.kind = doFetchOp
	}
	switch s.kind {
	case doAccumulate, doGetAccumulate, doFetchOp:
		if s.op = seg.op; w.IntN(3) == 0 || seg.use == useReads {
			s.op = 0
		}
		if s.op == 0 && s.kind == doAccumulate {
			s.kind = doGetAccumulate
		}
	case doSwap, doReadSwap:
		if seg.use == useReads {
			s.kind, s.op = doFetchOp, 0
		}
		s.compare = w.IntN(5)
	}
	if s.kind == doFetchOp || s.kind == doSwap || s.kind == doReadSwap {
		s.to = s.from + 1
	}
	class := doAccumulate // of operations that may be under way together
	switch s.kind {
	case doGet, doReadSection:
		class = doGet
	case doPut, doSection:
		class = doPut
	}
	for word := s.from; word < s.to; word++ {
		if s.kind == doPut || s.kind >= doSection {
			s.values = append(s.values, w.value())
		} else {
			s.values = append(s.values, w.operand(s.op))
		}
		before, is := w.open[[2]int{target, word}]
		if !is || before == class && class != doPut {
			continue
		}
		if w.phase.sync != byLocks {
			return // a flush is not for this epoch
		}
		w.flush(target, before == doGet)
	}
	if w.phase.sync == byLocks {
		s.request = s.kind <= doGetAccumulate && w.IntN(3) == 0
	}
	w.steps = append(w.steps, s)
	if s.kind != doReadSection { // which flushes
		for word := s.from; word < s.to; word++ {
			w.open[[2]int{target, word}] = class
		}
	}
	if w.phase.sync == byLocks && w.IntN(4) == 0 {
		w.flush(target, w.IntN(2) == 0)
	}
}

// flush adds a flush of a rank, or of all; local: one of the local forms may do.
func (w *litmusWriter) flush(target int, local bool) {
	kind := doFlush + litmusDo(w.IntN(2))
	if local && w.IntN(2) == 0 {
		kind += doFlushLocal - doFlush
	}
	w.steps = append(w.steps, litmusStep{kind: kind, target: target})
	for t := range w.n {
		if t == target || kind == doFlushAll || kind == doFlushLocalAll {
			w.closed(t, kind <= doFlushAll)
		}
	}
}

// litmusState has the words of a rank.
type litmusState[T any] = [litmusWords]T

// litmusEvent is an operation on words of a rank. step makes it on a sequential machine, and reports whether the
// results are what they were.
type litmusEvent[T any] struct {
	begin, end int64
	thread     int
	text       string
	step       func(*litmusState[T]) bool
}

// litmusPlay is a program that runs.
type litmusPlay[T comparable] struct {
	*litmus
	litmusElement[T]
	hint  string
	clock atomic.Int64
	meet  rendezvousOfRanks

	mu     sync.Mutex
	events map[[2]int][]*litmusEvent[T] // of a phase, by the rank and its first word
	before []litmusState[T]             // of each rank
	after  []litmusState[T]
}

func playLitmus[T comparable](run runner, seed uint64, hint string, k litmusElement[T]) {
	p := &litmusPlay[T]{litmus: makeLitmus(seed, len(k.ops), k.swap, sizeOf[T]()), litmusElement: k, hint: hint}
	p.meet.n = p.n
	p.before, p.after = make([]litmusState[T], p.n), make([]litmusState[T], p.n)
	run(p.n, func(w *Comm) {
		defer func() {
			if failed := recover(); failed != nil {
				p.meet.fail()
				panic(fmt.Errorf("%v; %s", failed, hint))
			}
		}()
		p.body(w)
	})
}

// rendezvousOfRanks is a barrier of which the library knows nothing.
type rendezvousOfRanks struct {
	n     int
	mu    sync.Mutex
	there int
	next  chan struct{}
	ended bool
}

func (r *rendezvousOfRanks) wait() {
	r.mu.Lock()
	if r.next == nil {
		r.next = make(chan struct{})
	}
	next, ended := r.next, r.ended
	if r.there++; r.there == r.n {
		r.there, r.next = 0, nil
		close(next)
	}
	r.mu.Unlock()
	if !ended {
		<-next
	}
	r.mu.Lock()
	ended = r.ended
	r.mu.Unlock()
	check(!ended, "another rank has failed")
}

func (r *rendezvousOfRanks) fail() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended = true; r.next != nil {
		close(r.next)
		r.next = nil
	}
}

func (p *litmusPlay[T]) body(w *Comm) {
	if p.reversed {
		w = ok(w.Split(0, -w.Rank()))
		defer w.Free()
	}
	me := w.Rank()
	var win *Win[T]
	length := 0
	if p.words[me] > 0 {
		length = (p.words[me]-1)*p.gap + 1
	}
	if p.create {
		win = ok(WinCreate(w, make([]T, length)))
	} else {
		win = ok(WinAlloc[T](w, length))
	}
	for i := range p.phases {
		phase := &p.phases[i]
		for word := range p.words[me] {
			if phase.fresh {
				p.before[me][word] = p.of(1 + (i+word)%7)
				win.Local()[word*p.gap] = p.before[me][word]
			}
		}
		must(win.Sync())
		ok2(Iprobe(w, 0, 0)) // the race detector sees that requests of other ranks are handled later
		p.meet.wait()
		if me == 0 {
			p.events = map[[2]int][]*litmusEvent[T]{}
		}
		p.meet.wait()
		p.run(win, phase, me)
		p.meet.wait() // not a call of the library, which might complete something
		must(win.Sync())
		ok2(Iprobe(w, 0, 0)) // and here that they have been handled
		for word := range p.words[me] {
			p.after[me][word] = win.Local()[word*p.gap]
		}
		p.meet.wait()
		if me == 0 {
			p.check(i)
			copy(p.before, p.after)
		}
		p.meet.wait()
	}
	must(win.Free())
}

func ok2[S, T any](_ S, _ T, err error) { must(err) }

// run runs the steps of a rank.
func (p *litmusPlay[T]) run(win *Win[T], phase *litmusPhase, me int) {
	var all []*litmusThread[T]
	for id, steps := range phase.threads[me] {
		all = append(all, &litmusThread[T]{p: p, win: win, phase: phase, me: me, id: 2*me + id, steps: steps})
	}
	first := all[0]
	switch {
	case phase.sync == byFence:
		must(win.Fence())
		first.run()
		must(win.Fence())
		first.complete(Undefined, true)
	case phase.sync == byGroups:
		var to, from []int
		for other := range p.n {
			if phase.access[me][other] {
				to = append(to, other)
			}
			if phase.access[other][me] {
				from = append(from, other)
			}
		}
		r := newRand(phase.shuffle, uint64(me))
		r.Shuffle(len(to), func(i, j int) { to[i], to[j] = to[j], to[i] })
		r.Shuffle(len(from), func(i, j int) { from[i], from[j] = from[j], from[i] })
		must(win.Post(ok(win.Group().Incl(from...))))
		must(win.Start(ok(win.Group().Incl(to...))))
		first.run()
		must(win.Complete())
		if r.IntN(2) == 0 {
			must(win.Wait())
		} else {
			for !ok(win.Test()) {
			}
		}
		first.complete(Undefined, true)
	case phase.all[me]:
		must(win.LockAll())
		var others sync.WaitGroup
		var failed atomic.Value
		for _, t := range all[1:] {
			others.Go(func() {
				defer func() {
					if f := recover(); f != nil {
						failed.Store(fmt.Errorf("%s: %v", testLines(), f))
					}
				}()
				t.run()
			})
		}
		first.run()
		others.Wait()
		if f := failed.Load(); f != nil {
			panic(f)
		}
		must(win.UnlockAll())
		for _, t := range all {
			t.complete(Undefined, true)
		}
	default:
		first.run()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, t := range all {
		for _, e := range t.events {
			p.events[e.at] = append(p.events[e.at], e.litmusEvent)
		}
	}
}

// litmusThread is a thread that runs.
type litmusThread[T comparable] struct {
	p        *litmusPlay[T]
	win      *Win[T]
	phase    *litmusPhase
	me, id   int
	steps    []litmusStep
	events   []placedEvent[T]
	under    []underWay[T]
	requests []*Request
}

type placedEvent[T any] struct {
	at [2]int
	*litmusEvent[T]
}

// underWay is an operation that is not known to be complete.
type underWay[T any] struct {
	target  int
	request bool
	src     []T    // the window's until the next flush, of the local forms too; nil: none
	results func() // takes the results; nil: there are none
	events  []*litmusEvent[T]
}

func (t *litmusThread[T]) run() {
	for i := range t.steps {
		t.do(&t.steps[i])
	}
	t.wait()
}

// event notes an operation on words of a rank.
func (t *litmusThread[T]) event(s *litmusStep, word int, begin int64, text string,
	step func(*litmusState[T]) bool) *litmusEvent[T] {
	for _, seg := range t.phase.segments[s.target] {
		if seg.use >= useSections && seg.from <= word && word < seg.to {
			word = seg.from
		}
	}
	e := &litmusEvent[T]{begin: begin, thread: t.id, text: text, step: step}
	t.events = append(t.events, placedEvent[T]{[2]int{s.target, word}, e})
	return e
}

// elements are the operands of a step, with gaps that have them too.
func (t *litmusThread[T]) elements(s *litmusStep) []T {
	src := make([]T, (s.to-s.from-1)*t.p.gap+1)
	for i := range src {
		src[i] = t.p.of(s.values[i/t.p.gap])
	}
	return src
}

func (t *litmusThread[T]) started(r *Request, err error) {
	must(err)
	t.requests = append(t.requests, r)
}

// wait ends the requests.
func (t *litmusThread[T]) wait() {
	if len(t.requests)%2 == 0 {
		must(WaitAll(t.requests...))
	} else {
		for range t.requests {
			i, _, err := WaitAny(t.requests...)
			must(err)
			t.requests[i] = nil
		}
	}
	t.requests = nil
	t.end(false, func(u *underWay[T]) bool { return u.request })
}

// do runs a step.
func (t *litmusThread[T]) do(s *litmusStep) {
	p, win, at := t.p, t.win, int64(s.from*t.p.gap)
	n := (s.to-s.from-1)*p.gap + 1
	begin := p.clock.Add(1)
	defer s.yield()
	var own []*litmusEvent[T]
	each := func(text string, step func(i int, state *litmusState[T]) bool) {
		for word := s.from; word < s.to; word++ {
			text := fmt.Sprintf("%s of word %d", text, word)
			own = append(own, t.event(s, word, begin, text, func(state *litmusState[T]) bool {
				return step(word-s.from, state)
			}))
		}
	}
	done := func() {
		end := p.clock.Add(1)
		for _, e := range own {
			e.end = end
		}
	}
	op := p.ops[s.op]
	switch s.kind {
	case doPut:
		src := t.elements(s)
		if s.request {
			t.started(win.RPut(src, s.target, at))
		} else {
			must(win.Put(src, s.target, at))
		}
		each(fmt.Sprintf("Put %v", s.values), func(i int, state *litmusState[T]) bool {
			state[s.from+i] = p.of(s.values[i])
			return true
		})
		t.under = append(t.under, underWay[T]{target: s.target, request: s.request, src: src, events: own})
	case doGet:
		dst, got := make([]T, n), make([]T, s.to-s.from)
		if s.request {
			t.started(win.RGet(dst, s.target, at))
		} else {
			must(win.Get(dst, s.target, at))
		}
		each("Get", func(i int, state *litmusState[T]) bool { return state[s.from+i] == got[i] })
		events := own
		t.under = append(t.under, underWay[T]{target: s.target, request: s.request, events: own, results: func() {
			for i := range got {
				got[i] = dst[i*p.gap]
				events[i].text += fmt.Sprintf(", %v", got[i])
			}
		}})
	case doAccumulate:
		src := t.elements(s)
		if s.request {
			t.started(win.RAccumulate(op.op, src, s.target, at))
		} else {
			must(win.Accumulate(op.op, src, s.target, at))
		}
		each(fmt.Sprintf("%s %v", op.name, s.values), func(i int, state *litmusState[T]) bool {
			state[s.from+i] = op.model(state[s.from+i], p.of(s.values[i]))
			return true
		})
		t.under = append(t.under, underWay[T]{target: s.target, request: s.request, src: src, events: own})
	case doGetAccumulate:
		src, got := t.elements(s), make([]T, n)
		if s.op == 0 && s.values[0] == 1 {
			src = nil
		}
		if s.request {
			t.started(win.RGetAccumulate(op.op, src, got, s.target, at))
		} else {
			must(win.GetAccumulate(op.op, src, got, s.target, at))
		}
		each(fmt.Sprintf("GetAccumulate %s %v", op.name, s.values), func(i int, state *litmusState[T]) bool {
			was := state[s.from+i]
			state[s.from+i] = op.model(was, p.of(s.values[i]))
			return was == got[i*p.gap]
		})
		for i, e := range own {
			e.text += fmt.Sprintf(", was %v", got[i*p.gap])
		}
		done()
	case doFetchOp:
		t.fetch(s, s.op, begin)
	case doSwap, doReadSwap:
		compare := p.of(s.compare)
		if s.kind == doReadSwap {
			compare = t.fetch(s, 0, begin)
			begin = p.clock.Add(1)
		}
		after := p.of(s.values[0])
		was := ok(win.CompareAndSwap(s.target, at, compare, after))
		each(fmt.Sprintf("CompareAndSwap %v %v, was %v", compare, after, was), func(_ int, state *litmusState[T]) bool {
			found := state[s.from]
			if found == compare {
				state[s.from] = after
			}
			return found == was
		})
		done()
	case doFlush:
		t.wait()
		must(win.Flush(s.target))
		t.complete(s.target, true)
	case doFlushAll:
		t.wait()
		must(win.FlushAll())
		t.complete(Undefined, true)
	case doFlushLocal:
		t.wait()
		must(win.FlushLocal(s.target))
		t.complete(s.target, false)
	case doFlushLocalAll:
		t.wait()
		must(win.FlushLocalAll())
		t.complete(Undefined, false)
	case doLock:
		must(win.Lock(s.target, s.mode))
	case doUnlock:
		t.wait()
		must(win.Unlock(s.target))
		t.complete(s.target, true)
	case doSection:
		t.section(s, begin)
	case doReadSection:
		got := t.read(s)
		again := t.read(s)
		check(got == again, "words %d to %d of rank %d change from %v to %v in a shared lock", s.from, s.to-1, s.target,
			got, again)
		e := t.event(s, s.from, begin, fmt.Sprintf("read section, %v", got), func(state *litmusState[T]) bool {
			return slices.Equal(state[s.from:s.to], got[s.from:s.to])
		})
		e.end = p.clock.Add(1)
	}
}

func (s *litmusStep) yield() {
	for range s.yields {
		runtime.Gosched()
	}
}

func (t *litmusThread[T]) fetch(s *litmusStep, op int, begin int64) T {
	o, v := t.p.ops[op], t.p.of(s.values[0])
	was := ok(t.win.FetchOp(o.op, v, s.target, int64(s.from*t.p.gap)))
	e := t.event(s, s.from, begin, fmt.Sprintf("FetchOp %s %v of word %d, was %v", o.name, v, s.from, was),
		func(state *litmusState[T]) bool {
			found := state[s.from]
			state[s.from] = o.model(found, v)
			return found == was
		})
	e.end = t.p.clock.Add(1)
	return was
}

// read gets the words of a step, which no other thread changes.
func (t *litmusThread[T]) read(s *litmusStep) (got litmusState[T]) {
	dst := make([]T, (s.to-s.from-1)*t.p.gap+1)
	if s.local {
		copy(dst, t.win.Local()[s.from*t.p.gap:])
	} else {
		must(t.win.Get(dst, s.target, int64(s.from*t.p.gap)))
		must(t.win.Flush(s.target))
	}
	for word := s.from; word < s.to; word++ {
		got[word] = dst[(word-s.from)*t.p.gap]
	}
	return got
}

// section reads all words and writes others. The caller has an exclusive lock.
func (t *litmusThread[T]) section(s *litmusStep, begin int64) {
	got := t.read(s)
	src := t.elements(s)
	s.yield()
	if s.local {
		half := len(src) / 2
		copy(t.win.Local()[s.from*t.p.gap:], src[:half])
		s.yield()
		copy(t.win.Local()[s.from*t.p.gap+half:], src[half:])
	} else {
		must(t.win.Put(src, s.target, int64(s.from*t.p.gap)))
	}
	e := t.event(s, s.from, begin, fmt.Sprintf("section, was %v, is %v", got, s.values),
		func(state *litmusState[T]) bool {
			was := *state
			for i, v := range s.values {
				state[s.from+i] = t.p.of(v)
			}
			return slices.Equal(was[s.from:s.to], got[s.from:s.to])
		})
	if s.values[0]%2 == 0 {
		if !s.local {
			must(t.win.Flush(s.target))
		}
		now := t.read(s)
		for i, v := range s.values {
			check(now[s.from+i] == t.p.of(v), "words of rank %d are %v in the exclusive lock that has put %v", s.target,
				now, s.values)
		}
	}
	t.under = append(t.under, underWay[T]{target: s.target, src: src, events: []*litmusEvent[T]{e}})
}

// complete is called when the operations at a rank are complete there, or, unless remote, here. Undefined: at all.
func (t *litmusThread[T]) complete(target int, remote bool) {
	t.end(remote, func(u *underWay[T]) bool { return target == Undefined || u.target == target })
}

// end is called when the operations that are meant are complete at their targets, or, unless remote, here.
func (t *litmusThread[T]) end(remote bool, meant func(*underWay[T]) bool) {
	end := t.p.clock.Add(1)
	t.under = slices.DeleteFunc(t.under, func(u underWay[T]) bool {
		if !meant(&u) {
			return false
		}
		for i := range u.src { // the caller's again
			u.src[i] = t.p.of(101)
		}
		if !remote && u.results == nil {
			return false
		}
		if u.results != nil {
			u.results()
		}
		for _, e := range u.events {
			e.end = end
		}
		return true
	})
}

// check looks for an order of the events of a phase at each word.
func (p *litmusPlay[T]) check(phase int) {
	for at, events := range p.events {
		rank := at[0]
		search := litmusSearch[T]{failed: map[litmusPosition[T]]bool{}}
		byThread := map[int]int{}
		for _, e := range events {
			i, is := byThread[e.thread]
			if !is {
				i = len(search.threads)
				byThread[e.thread] = i
				search.threads = append(search.threads, nil)
			}
			search.threads[i] = append(search.threads[i], e)
		}
		from, to, mask := at[1], at[1]+1, litmusState[T]{}
		for _, seg := range p.phases[phase].segments[rank] {
			if seg.use >= useSections && seg.from == from {
				to = seg.to
			}
		}
		first := mask
		copy(first[from:to], p.before[rank][from:to])
		copy(search.last[from:to], p.after[rank][from:to])
		if search.from(litmusPosition[T]{state: first}) {
			continue
		}
		var text strings.Builder
		fmt.Fprintf(&text, "phase %d by %v: no order of these explains that words %d to %d of rank %d are %v and were %v",
			phase, p.phases[phase].sync, from, to-1, rank, p.after[rank][from:to], p.before[rank][from:to])
		for _, events := range search.threads {
			for _, e := range events {
				fmt.Fprintf(&text, "\n\tthread %d of rank %d, from %d to %d: %s", e.thread%2, e.thread/2, e.begin, e.end,
					e.text)
			}
		}
		panic(text.String())
	}
	for rank := range p.n { // words without operations
		for word := range p.words[rank] {
			used := false
			for _, seg := range p.phases[phase].segments[rank] {
				used = used || seg.from <= word && word < seg.to && (p.events[[2]int{rank, word}] != nil ||
					seg.use >= useSections && p.events[[2]int{rank, seg.from}] != nil)
			}
			check(used || p.before[rank][word] == p.after[rank][word],
				"phase %d by %v: word %d of rank %d is %v, and was %v without any operation", phase,
				p.phases[phase].sync, word, rank, p.after[rank][word], p.before[rank][word])
		}
	}
}

// litmusSearch looks for an order of events.
type litmusSearch[T comparable] struct {
	threads [][]*litmusEvent[T]
	last    litmusState[T]
	failed  map[litmusPosition[T]]bool
}

// litmusPosition is how far each thread is, and the words then.
type litmusPosition[T comparable] struct {
	next  [10]uint8
	state litmusState[T]
}

// from reports whether there is an order from a position on.
func (s *litmusSearch[T]) from(at litmusPosition[T]) bool {
	if s.failed[at] {
		return false
	}
	over := true
	for i, events := range s.threads {
		if int(at.next[i]) == len(events) {
			continue
		}
		over = false
		e := events[at.next[i]]
		if !s.mayBegin(at, i, e) {
			continue
		}
		then := at
		then.next[i]++
		if e.step(&then.state) && s.from(then) {
			return true
		}
	}
	if over && at.state == s.last {
		return true
	}
	s.failed[at] = true
	return false
}

// mayBegin reports whether no event that is still to come was complete before e began.
func (s *litmusSearch[T]) mayBegin(at litmusPosition[T], own int, e *litmusEvent[T]) bool {
	for i, events := range s.threads {
		if i == own {
			continue
		}
		for _, other := range events[at.next[i]:] {
			if other.end < e.begin {
				return false
			}
		}
	}
	return true
}
