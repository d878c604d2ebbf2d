package main

import (
	"errors"
	"slices"

	"github.com/gorun-mpi/mpi"
	"github.com/gorun-mpi/mpi/benchmarks/harness"
	"github.com/gorun-mpi/mpi/benchmarks/internal/bench"
)

// syncCalls are the calls that begin and end epochs, in the order of harness.Syncs.
type syncCalls int

const (
	lock syncCalls = iota
	lockExclusive
	flush
	flushLocal
	lockAll
	lockAllFlush
	pscw
	fence
)

// side is one rank of a measurement. It implements bench.Rounds. What a round calls is bound before it: an operation on
// memory of this host takes few nanoseconds, and a choice in each round would be much of what is measured.
type side[T byte | int64] struct {
	operation
	world  *mpi.Comm
	win    *mpi.Win[T]
	memory []T   // of the window, at this rank
	base   int64 // where it begins at the target: in a dynamic window not at 0
	sync   syncCalls
	rank   int
	target int        // of its operations
	peers  *mpi.Group // target alone
	acts   bool       // it has operations
	turns  bool       // the two ranks have them in turns
	depth  int        // operations in a round

	n             int // elements of an operation
	do            func(at int) error
	local, before []T // depth times n elements: what operations write, or read into, and what they return
	sum           mpi.Op[T]
	word, next    T // of one element: what an operation has returned; what CompareAndSwap expects
	pattern[T]
}

// pattern is what -c fills elements with.
type pattern[T byte | int64] interface {
	// fill writes the elements of a round and a rank.
	fill(elements []T, round, rank int)
}

func newSide[T byte | int64](j *bench.Job, o operation, sync string, sum mpi.Op[T], p pattern[T],
) (s *side[T], err error) {
	s = &side[T]{operation: o, world: j.World, rank: j.Rank,
		sync: syncCalls(slices.Index(harness.Syncs, sync)), target: 1 - j.Rank, depth: o.depth(j.Options),
		sum: sum, pattern: p}
	s.turns = o.shape == latency && (s.sync == pscw || s.sync == fence)
	s.acts = j.Rank == 0 || s.turns || o.shape == bothWays || o.shape == fromAll
	if o.shape == fromAll {
		s.target = 0
	}
	size := 1
	if o.words() {
		size = wordBytes
	}
	most := s.depth * int(j.Options.MaxSize) / size
	if s.local, err = bench.Memory[T](j, most); err != nil {
		return nil, err
	}
	if o.call == getAccumulate {
		if s.before, err = bench.Memory[T](j, most); err != nil {
			return nil, err
		}
	}
	if err = s.makeWindow(j, most); err != nil {
		return nil, err
	}
	clear(s.memory)
	if s.peers, err = j.World.Group().Incl(s.target); err != nil || !s.acts {
		return s, err
	}
	switch s.sync {
	case flush, flushLocal:
		err = s.win.Lock(s.target, mpi.Shared)
	case lockAllFlush:
		err = s.win.LockAll()
	}
	return s, err
}

func (s *side[T]) makeWindow(j *bench.Job, n int) (err error) {
	var options []mpi.WinOption
	if s.one() { // FetchOp and CompareAndSwap, the best way that there is
		options = append(options, mpi.NICAtomics)
	}
	switch kind := j.Options.WinKind; kind {
	case "create", "dynamic":
		if s.memory, err = bench.Memory[T](j, n); err != nil {
			return err
		}
		if kind == "dynamic" {
			return s.attach()
		}
		s.win, err = mpi.WinCreate(j.World, s.memory, options...)
		return err
	case "shared":
		s.win, err = mpi.WinShared[T](j.World, n)
	default:
		s.win, err = mpi.WinAlloc[T](j.World, n, options...)
	}
	if err == nil {
		s.memory = s.win.Local()
	}
	return err
}

// attach makes a dynamic window with this rank's memory, and finds the target's.
func (s *side[T]) attach() (err error) {
	if s.win, err = mpi.WinDynamic[T](s.world); err != nil {
		return err
	}
	at, err := s.win.Attach(s.memory)
	if err != nil {
		return err
	}
	all := make([]int64, s.world.Size())
	if err = mpi.Allgather(s.world, []int64{at}, all); err == nil && s.acts {
		s.base = all[s.target]
	}
	return err
}

func (s *side[T]) free() (err error) {
	switch {
	case !s.acts:
	case s.sync == flush, s.sync == flushLocal:
		err = s.win.Unlock(s.target)
	case s.sync == lockAllFlush:
		err = s.win.UnlockAll()
	}
	return errors.Join(err, s.win.Free())
}

// operations is how many of them a round of all ranks has.
func (s *side[T]) operations() int {
	switch {
	case s.turns, s.shape == bothWays:
		return 2 * s.depth
	case s.shape == fromAll:
		return s.world.Size()
	}
	return s.depth
}

// value is what is printed of a round that takes so many nanoseconds.
func (s *side[T]) value(ns float64) float64 {
	switch {
	case s.call == noCall:
		return ns / 1e3
	case s.shape == fromAll:
		return float64(s.operations()) * 1e9 / ns
	case s.shape == latency:
		return ns / 1e3 / float64(s.operations())
	}
	return float64(s.operations()*s.n) * 1e3 / ns
}

// Resize implements bench.Rounds.
func (s *side[T]) Resize(size int64) error {
	s.n = int(size)
	if s.words() {
		s.n /= wordBytes
	}
	s.bind()
	return nil
}

// Play implements bench.Rounds.
func (s *side[T]) Play(n int) error {
	switch {
	case s.sync == pscw:
		return s.pscw(n)
	case s.sync == fence:
		return s.fence(n)
	case s.shape == fromAll: // the round lasts until the last rank has finished
		return errors.Join(s.passive(n), mpi.Barrier(s.world))
	case s.acts:
		return s.passive(n)
	}
	return nil
}

// passive plays the rounds of which the target takes no notice.
func (s *side[T]) passive(n int) (err error) {
	begin, end := s.passiveCalls()
	for range n {
		if begin != nil {
			err = begin()
		}
		if err == nil {
			err = s.operate()
		}
		if err == nil {
			err = end()
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// passiveCalls are the calls before and after the operations of a round; a nil begin: only end.
func (s *side[T]) passiveCalls() (begin, end func() error) {
	win, target := s.win, s.target
	switch s.sync {
	case lock:
		return func() error { return win.Lock(target, mpi.Shared) }, func() error { return win.Unlock(target) }
	case lockExclusive:
		return func() error { return win.Lock(target, mpi.Exclusive) }, func() error { return win.Unlock(target) }
	case lockAll:
		return win.LockAll, win.UnlockAll
	case flushLocal:
		return nil, func() error { return win.FlushLocal(target) }
	}
	return nil, func() error { return win.Flush(target) }
}

func (s *side[T]) pscw(n int) error {
	for range n {
		var err error
		switch {
		case s.shape == bothWays:
			if err = s.win.Post(s.peers); err == nil {
				err = s.access()
			}
			if err == nil {
				err = s.win.Wait()
			}
		case s.rank == 0:
			if err = s.access(); err == nil && s.turns {
				err = s.expose()
			}
		default:
			if err = s.expose(); err == nil && s.turns {
				err = s.access()
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// access is an epoch of this rank's operations.
func (s *side[T]) access() error {
	if err := s.win.Start(s.peers); err != nil {
		return err
	}
	if err := s.operate(); err != nil {
		return err
	}
	return s.win.Complete()
}

// expose is an epoch of the other rank's operations.
func (s *side[T]) expose() error {
	if err := s.win.Post(s.peers); err != nil {
		return err
	}
	return s.win.Wait()
}

func (s *side[T]) fence(n int) error {
	for range n {
		if err := s.win.Fence(); err != nil {
			return err
		}
		if s.call == noCall {
			continue
		}
		if s.rank == 0 || s.shape == bothWays {
			if err := s.operate(); err != nil {
				return err
			}
		}
		if err := s.win.Fence(); err != nil {
			return err
		}
		if !s.turns {
			continue
		}
		if s.rank != 0 {
			if err := s.operate(); err != nil {
				return err
			}
		}
		if err := s.win.Fence(); err != nil {
			return err
		}
	}
	return nil
}

// operate has the operations of a round.
func (s *side[T]) operate() error {
	for i := range s.depth {
		if err := s.do(i * s.n); err != nil {
			return err
		}
	}
	return nil
}

// bind makes do what the operation is, with elements from one on.
func (s *side[T]) bind() {
	win, target, base, sum, n := s.win, s.target, s.base, s.sum, s.n
	switch s.call {
	case put:
		s.do = func(at int) error { return win.Put(s.local[at:at+n], target, base+int64(at)) }
	case get:
		s.do = func(at int) error { return win.Get(s.local[at:at+n], target, base+int64(at)) }
	case accumulate:
		s.do = func(at int) error { return win.Accumulate(sum, s.local[at:at+n], target, base+int64(at)) }
	case getAccumulate:
		s.do = func(at int) error {
			return win.GetAccumulate(sum, s.local[at:at+n], s.before[at:at+n], target, base+int64(at))
		}
	case fetchOp:
		s.do = func(int) (err error) {
			s.word, err = win.FetchOp(sum, s.local[0], target, base)
			return err
		}
	case compareAndSwap:
		s.do = func(int) (err error) {
			s.word, err = win.CompareAndSwap(target, base, s.next, s.next+1)
			s.next++
			return err
		}
	}
}

type (
	fillBytes struct{}
	fillWords struct{}
)

func (fillBytes) fill(b []byte, round, rank int) { harness.Fill(b, round, rank) }

// fill leaves room for sums.
func (fillWords) fill(words []int64, round, rank int) {
	for i := range words {
		words[i] = int64(1000*round + 10*i + rank + 1)
	}
}

// Fill implements bench.Rounds: every rank has a pattern in its part of the window, and another one of what it sends.
func (s *side[T]) Fill(round int) {
	s.fill(s.memory[:s.depth*s.n], round, s.rank)
	s.fill(s.local[:s.depth*s.n], round, s.world.Size()+s.rank)
	clear(s.before)
	s.word = 0
	if s.call == compareAndSwap {
		s.next = s.own(round, s.target)[0]
	}
}

// own returns what Fill has written into a rank's part of the window.
func (s *side[T]) own(round, rank int) []T {
	v := make([]T, s.depth*s.n)
	s.fill(v, round, rank)
	return v
}

// Check implements bench.Rounds. The operations are complete at all ranks when all ranks have come here.
func (s *side[T]) Check(round int) (wrong int64) {
	err := s.complete()
	size := s.world.Size()
	want := s.own(round, s.rank)
	for from := range size {
		if !s.actsOn(from, s.rank) || s.call == noCall {
			continue
		}
		sent := s.own(round, size+from)
		switch s.call {
		case put:
			want = sent
		case compareAndSwap:
			want[0]++
		case accumulate, getAccumulate, fetchOp:
			for i := range want {
				want[i] += sent[i]
			}
		}
	}
	wrong += differ(s.memory[:len(want)], want)
	if s.acts {
		there := s.own(round, s.target)
		switch s.call {
		case get:
			wrong += differ(s.local[:len(there)], there)
		case getAccumulate:
			wrong += differ(s.before[:len(there)], there)
		case fetchOp, compareAndSwap:
			if s.shape != fromAll { // then other ranks may have been there before
				wrong += differ([]T{s.word}, there)
			}
		}
	}
	// No rank fills while another one compares.
	if errors.Join(err, mpi.Barrier(s.world)) != nil {
		wrong++
	}
	return wrong
}

// complete ends the operations at the target, also where FlushLocal has not.
func (s *side[T]) complete() error {
	var err error
	if s.acts && s.sync == flushLocal {
		err = s.win.Flush(s.target)
	}
	return errors.Join(err, mpi.Barrier(s.world))
}

// actsOn reports whether a rank has operations on the memory of another one.
func (s *side[T]) actsOn(rank, target int) bool {
	switch {
	case s.shape == fromAll:
		return target == 0
	case s.turns, s.shape == bothWays:
		return rank != target
	}
	return rank == 0 && target == 1
}

func differ[T byte | int64](got, want []T) int64 {
	for i := range want {
		if got[i] != want[i] {
			return 1
		}
	}
	return 0
}
