package board

import (
	"slices"
	"testing"

	"github.com/gorun-mpi/mpi/transport"
)

// A member that ends when it has raised a word, and has not woken those who sleep for it: they are woken by who tells
// of its end.
func TestWakerEnds(t *testing.T) {
	const members, sleeper, waker, teller = 3, 0, 1, 2
	mem := Heap(Size(members, members, 0))
	var woken []int
	ends := func(int) {}
	tells := func(i int) { woken = append(woken, i) }
	var sets [members]Set
	on := func(me int, wake func(int)) *transport.Board {
		return sets[me].New(mem, []int32{0, 1, 2}, me, members, wake, func(int) {}, func() {}, func() {})
	}
	asleep, ended, alive := on(sleeper, tells), on(waker, ends), on(teller, tells)
	asleep.Expect(waker, 1, 0)
	if !sets[sleeper].Arm() {
		t.Fatal("a member cannot sleep until a word is raised")
	}
	ended.Raise(waker, 1)
	if alive.Fail(waker, nil); !slices.Contains(woken, sleeper) {
		t.Errorf("members %v have been woken; want %d too", woken, sleeper)
	}
}
