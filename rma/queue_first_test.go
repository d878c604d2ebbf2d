package rma

import "testing"

// A request that is First passes those that wait, but no holder: two ranks that take the locks of two others in
// different orders do not wait for each other behind requests for exclusive locks.
func TestQueueFirst(t *testing.T) {
	var q Queue
	grant := func(want int32) {
		t.Helper()
		if a, ok := q.Grant(); want < 0 && ok || want >= 0 && (!ok || a.Rank != want) {
			t.Errorf("Grant gives %+v, %v; want rank %d", a, ok, want)
		}
	}
	ask := func(rank int32, m Mode, first bool) {
		t.Helper()
		if !q.Ask(Asked{Rank: rank, Mode: m, First: first}) {
			t.Errorf("rank %d cannot ask", rank)
		}
	}
	ask(1, Shared, true)
	grant(1)
	ask(2, Exclusive, false)
	grant(-1)
	ask(3, Shared, false)
	grant(-1) // behind rank 2
	ask(4, Shared, true)
	grant(4)
	grant(-1)
	q.Leave(1)
	q.Leave(4)
	grant(2)
	ask(5, Shared, true)
	grant(-1)
	q.Leave(2)
	grant(5)
	grant(3)
	ask(7, Exclusive, false)
	if all := q.Refuse(); len(all) != 1 || all[0].Rank != 7 {
		t.Errorf("Refuse returns %v", all)
	}
	grant(-1)
	if q.Ask(Asked{Rank: 6, Mode: Exclusive, First: true}) {
		t.Error("an exclusive lock can be First")
	}
}
