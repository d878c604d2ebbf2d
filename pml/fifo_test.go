package pml

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// A fifo holds what a plain slice does, and keeps nothing that has been taken off.
func TestFifo(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 7))
	var q fifo[int]
	var want []int
	for step := range 20_000 {
		switch n := r.IntN(8); {
		case n == 6 && r.IntN(50) == 0:
			third := func(v int) bool { return v%3 == 0 }
			q.deleteFunc(third)
			want = slices.DeleteFunc(want, third)
		case n < 4 && step/500%2 == 0 || n < 3 || len(want) == 0:
			q.push(step + 1)
			want = append(want, step+1)
		case n == 7:
			i := r.IntN(len(want))
			q.remove(i)
			want = slices.Delete(want, i, i+1)
		default:
			q.pop()
			want = want[1:]
		}
		if !slices.Equal(q.items(), want) || q.len() != len(want) {
			t.Fatalf("step %d: %d are in it, want %d", step, q.len(), len(want))
		}
		if rest := q.list[:cap(q.list)]; slices.ContainsFunc(rest[:q.head], notZero) ||
			slices.ContainsFunc(rest[len(q.list):], notZero) {
			t.Fatalf("step %d: what was taken off is still kept", step)
		}
		if cap(q.list) > 8*max(len(want), 100) && step < 500 {
			t.Fatalf("step %d: %d are in it, it has room for %d", step, len(want), cap(q.list))
		}
	}
}

func notZero(v int) bool { return v != 0 }

// In a steady state nothing is allocated.
func TestFifoAllocatesNothing(t *testing.T) {
	var q fifo[int]
	for range 100 {
		q.push(1)
	}
	if n := testing.AllocsPerRun(1000, func() { q.push(2); q.pop() }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
