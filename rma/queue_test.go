package rma

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"testing"
)

// queueModel is the lock as two lists: the requests that have the lock, and those that wait, oldest first.
type queueModel struct {
	holders, waiting []Asked
}

func (m *queueModel) ask(a Asked) bool {
	waits := 0
	for _, w := range m.waiting {
		if w.Rank == a.Rank {
			waits++
		}
	}
	if waits >= asksMost || a.Mode != Shared && a.Mode != Exclusive {
		return false
	}
	m.waiting = append(m.waiting, a)
	return true
}

// grant gives the lock to the oldest request, if each holder can have it together with that.
func (m *queueModel) grant() (a Asked, ok bool) {
	if len(m.waiting) == 0 {
		return a, false
	}
	a = m.waiting[0]
	for _, h := range m.holders {
		if h.Mode == Exclusive || a.Mode == Exclusive {
			return Asked{}, false
		}
	}
	m.holders, m.waiting = append(m.holders, a), m.waiting[1:]
	return a, true
}

func (m *queueModel) leave(rank int32) bool {
	i := slices.IndexFunc(m.holders, func(h Asked) bool { return h.Rank == rank })
	if i >= 0 {
		m.holders = slices.Delete(m.holders, i, i+1)
	}
	return i >= 0
}

func (m *queueModel) failed(rank int32) (waiting []Asked, had bool) {
	for _, w := range m.waiting {
		if w.Rank != rank {
			waiting = append(waiting, w)
		}
	}
	if !slices.ContainsFunc(m.holders, func(h Asked) bool { return h.Rank == rank }) {
		m.waiting = waiting
		return nil, false
	}
	m.waiting = nil
	return waiting, true
}

// queues is a Queue and its model.
type queues struct {
	tb    testing.TB
	fast  Queue
	model queueModel
	asked int32 // requests so far: the tag of each is its age
	last  int32 // the tag of the youngest request that has got the lock
}

func (q *queues) ask(rank int32, mode Mode) {
	q.tb.Helper()
	q.asked++
	a := Asked{Rank: rank, Slot: q.asked, Mode: mode}
	if got, want := q.fast.Ask(a), q.model.ask(a); got != want {
		q.tb.Fatalf("Ask(%+v) is %v, want %v", a, got, want)
	}
	q.check()
}

// grant makes one Grant, and reports whether a rank has got the lock.
func (q *queues) grant() bool {
	q.tb.Helper()
	before := slices.Clone(q.model.waiting)
	got, ok := q.fast.Grant()
	want, wantOK := q.model.grant()
	if got != want || ok != wantOK {
		q.tb.Fatalf("Grant gives %+v, %v, want %+v, %v; waiting: %v", got, ok, want, wantOK, before)
	}
	if ok && got.Slot <= q.last {
		q.tb.Fatalf("Grant gives %+v after a request with tag %d", got, q.last)
	}
	if ok {
		q.last = got.Slot
	}
	q.check()
	return ok
}

func (q *queues) leave(rank int32) {
	q.tb.Helper()
	if got, want := q.fast.Leave(rank), q.model.leave(rank); got != want {
		q.tb.Fatalf("Leave(%d) is %v, want %v", rank, got, want)
	}
	q.check()
}

func (q *queues) failed(rank int32) (had bool) {
	q.tb.Helper()
	got, had := q.fast.Failed(rank)
	want, wantHad := q.model.failed(rank)
	if !slices.Equal(got, want) || had != wantHad {
		q.tb.Fatalf("Failed(%d) is %v, %v, want %v, %v", rank, got, had, want, wantHad)
	}
	q.check()
	return had
}

// check compares the states, and checks that a rank with the exclusive lock is alone.
func (q *queues) check() {
	q.tb.Helper()
	held, mode, exclusive := 0, Unlocked, 0
	for _, h := range q.model.holders {
		if mode = h.Mode; mode == Exclusive {
			exclusive++
		}
	}
	for _, n := range q.fast.held {
		held += n
	}
	switch {
	case held != len(q.model.holders) || q.fast.mode != mode:
		q.tb.Fatalf("%d requests have %v, want %v", held, q.fast.mode, q.model.holders)
	case exclusive > 0 && held != 1:
		q.tb.Fatalf("%v have the lock, one of them alone", q.model.holders)
	case !slices.Equal(q.fast.waiting, q.model.waiting):
		q.tb.Fatalf("%v wait, want %v", q.fast.waiting, q.model.waiting)
	}
}

// drain lets all holders go until no request waits: each of them gets the lock.
func (q *queues) drain() {
	q.tb.Helper()
	waiting := slices.Clone(q.model.waiting)
	for range len(waiting) + 1 {
		for q.grant() {
			waiting = waiting[1:]
		}
		for len(q.model.holders) > 0 {
			q.leave(q.model.holders[len(q.model.holders)-1].Rank)
		}
	}
	if len(waiting) > 0 || len(q.fast.waiting) > 0 || q.fast.mode != Unlocked || len(q.fast.held) > 0 {
		q.tb.Fatalf("%v never get the lock; the queue is %+v", waiting, q.fast)
	}
}

// play makes calls, each of one byte, and then lets all requests that wait get the lock.
func play(tb testing.TB, calls []byte) {
	tb.Helper()
	q := &queues{tb: tb}
	for _, c := range calls {
		switch rank := int32(c & 3); c >> 2 & 7 {
		case 0, 1:
			q.ask(rank, Shared)
		case 2:
			q.ask(rank, Exclusive)
		case 3:
			q.ask(rank, Mode(c>>5)) // most are no mode
		case 4, 5:
			q.leave(rank)
		case 6:
			q.grant()
		case 7:
			if c>>5 == 0 && q.failed(rank) {
				return // no request is granted after that
			}
		}
	}
	q.drain()
}

// The lock of a rank, where ranks ask for it by message, is the model's after every one of random calls; §12.5.3.
func TestQueue(t *testing.T) {
	for seed := range uint64(300) {
		rng := rand.New(rand.NewPCG(seed, 3))
		calls := make([]byte, 200)
		for i := range calls {
			calls[i] = byte(rng.Uint32())
		}
		play(t, calls)
	}
}

func FuzzQueue(f *testing.F) {
	f.Add([]byte{0, 1, 8, 2, 24, 24, 24, 24, 16, 17})
	f.Add([]byte{8, 8, 24, 9, 28})
	f.Fuzz(func(t *testing.T, calls []byte) { play(t, calls) })
}

// Readers do not pass a writer that waits: a row of readers before it gets the lock together, and the next row after
// it.
func TestQueueRows(t *testing.T) {
	q := &queues{tb: t}
	for rank, mode := range []Mode{Shared, Shared, Exclusive, Shared, Exclusive, Exclusive, Shared, Shared, Shared} {
		q.ask(int32(rank), mode)
	}
	for _, row := range [][]int32{{0, 1}, {2}, {3}, {4}, {5}, {6, 7, 8}} {
		for q.grant() {
		}
		var has []int32
		for _, h := range q.model.holders {
			has = append(has, h.Rank)
		}
		if !slices.Equal(has, row) {
			t.Fatalf("ranks %v have the lock, want %v", has, row)
		}
		for _, rank := range row {
			q.leave(rank)
		}
	}
}

// A rank that has given a request up asks again. It gets the lock once for each request, and lets it go as often.
func TestQueueAsksTwice(t *testing.T) {
	q := &queues{tb: t}
	q.ask(0, Exclusive)
	q.ask(1, Shared)
	q.ask(1, Shared)
	q.ask(2, Exclusive)
	q.grant()
	q.leave(0)
	for q.grant() {
	}
	if n := q.fast.held[1]; n != 2 {
		t.Fatalf("rank 1 has the lock %d times, want 2", n)
	}
	q.leave(1)
	if q.grant() {
		t.Fatal("a rank gets the exclusive lock, and rank 1 has a shared one still")
	}
	if q.leave(1); !q.grant() {
		t.Fatal("rank 2 does not get the lock")
	}
}

// asksMost requests of one rank wait at most, and those of other ranks do not count. A refusal changes nothing.
func TestQueueAsksMost(t *testing.T) {
	var q Queue
	for i := range int32(asksMost) {
		if !q.Ask(Asked{Rank: 1, Slot: i, Mode: Exclusive}) {
			t.Fatalf("request %d is refused", i)
		}
		if i%512 == 0 && !q.Ask(Asked{Rank: 2, Slot: i, Mode: Shared}) {
			t.Fatalf("request %d of another rank is refused", i)
		}
	}
	waiting := slices.Clone(q.waiting)
	for range 2 {
		if q.Ask(Asked{Rank: 1, Slot: 0, Mode: Shared}) {
			t.Fatalf("rank 1 has %d requests that wait", asksMost+1)
		}
	}
	if !slices.Equal(q.waiting, waiting) {
		t.Error("a refusal has changed the queue")
	}
	if !q.Ask(Asked{Rank: 2, Slot: asksMost, Mode: Shared}) {
		t.Error("a request of another rank is refused")
	}
	if _, ok := q.Grant(); !ok {
		t.Fatal("the oldest request does not get the lock")
	}
	if !q.Ask(Asked{Rank: 1, Slot: asksMost, Mode: Shared}) {
		t.Error("a request is refused after another one got the lock")
	}
}

// A rank that fails with the lock ends the queue: its other requests are gone, and those of other ranks are returned in
// order. One that fails while it waits is taken out.
func TestQueueFailed(t *testing.T) {
	q := &queues{tb: t}
	q.ask(0, Shared)
	q.grant()
	for _, rank := range []int32{1, 2, 1, 0, 3} {
		q.ask(rank, Exclusive)
	}
	if q.failed(1) {
		t.Error("rank 1 had the lock")
	}
	waiting, had := q.fast.Failed(0)
	ranks := make([]int32, len(waiting))
	for i, a := range waiting {
		ranks[i] = a.Rank
	}
	if !had || !slices.Equal(ranks, []int32{2, 3}) || !slices.IsSortedFunc(waiting, func(a, b Asked) int {
		return cmp.Compare(a.Slot, b.Slot)
	}) {
		t.Errorf("rank 0 had the lock: %v, and %v are returned", had, waiting)
	}
}
