package board

import (
	"math"
	"testing"

	"github.com/gorun-mpi/mpi/transport"
)

// pair is both views of a board of two members with two lines, and whom each has woken.
func pair(t *testing.T) (sets [2]*Set, views [2]*transport.Board, woken *[2]int, mem []byte) {
	t.Helper()
	mem, woken = Heap(Size(2, 2, 100)), new([2]int)
	for me := range 2 {
		sets[me] = new(Set)
		wake := func(i int) { woken[i]++ }
		views[me] = sets[me].New(mem, []int32{3, 5}, me, 2, wake, func(int) {}, func() {}, func() {})
	}
	return sets, views, woken, mem
}

// A shape that cannot be, or whose size would not fit a number, has no size.
func TestSize(t *testing.T) {
	for _, s := range [][3]int{{0, 1, 1}, {-1, 1, 1}, {1, -1, 1}, {1, 1, -1}, {math.MaxInt, 1, 1}, {1, math.MaxInt, 1},
		{1, 1, math.MaxInt}, {math.MinInt, math.MinInt, math.MinInt}} {
		if n := Size(s[0], s[1], s[2]); n != 0 {
			t.Errorf("a board of %v has %d bytes", s, n)
		}
	}
	for members := 1; members < 70; members++ {
		if n := Size(members, 3, 10); n < headSize+members*endSize+3*lineSize+10 || dataAt(members, 3)%lineSize != 0 {
			t.Errorf("%d members: %d bytes, data at %d", members, n, dataAt(members, 3))
		}
	}
}

func TestPlace(t *testing.T) {
	for i, rank := range []int{7, 0, 4} {
		if at, err := Place([]int32{7, 0, 4}, rank, 8); at != i || err != nil {
			t.Errorf("rank %d is at %d: %v", rank, at, err)
		}
	}
	for _, members := range [][]int32{nil, {0, 1}, {2, 2}, {2, 8}, {-1, 2}, {math.MaxInt32, 2}} {
		if _, err := Place(members, 2, 8); err == nil {
			t.Errorf("rank 2 has a place among %v of 8", members)
		}
	}
}

// What is expected is reported once, when the word is so far, up to the largest that it can be.
func TestReached(t *testing.T) {
	sets, views, woken, _ := pair(t)
	var pkts [2]transport.Packet
	for i, least := range []uint64{1, 2, 1 << 32, 1<<63 - 1, 1 << 63, math.MaxUint64} {
		views[0].Expect(1, least, uint64(i))
		views[1].Raise(1, least-1)
		if n := sets[0].Poll(pkts[:]); n != 0 {
			t.Fatalf("the word is %d, and %d is reported", least-1, least)
		}
		if !sets[0].Arm() {
			t.Fatal("there is something to poll")
		}
		before := woken[0]
		views[1].Raise(0, least) // which no member waits for
		if woken[0] != before {
			t.Error("woken for another line")
		}
		if views[1].Raise(1, least); woken[0] != before+1 {
			t.Errorf("woken %d times", woken[0]-before)
		}
		sets[0].Disarm()
		if n := sets[0].Poll(pkts[:0]); n != 0 {
			t.Fatal("reported without room")
		}
		if n := sets[0].Poll(pkts[:]); n != 1 || pkts[0].Event != transport.Reached || pkts[0].Peer != 3 ||
			pkts[0].Cookie != uint64(i) {
			t.Fatalf("%d events: %+v", n, pkts[0])
		}
		if n := sets[0].Poll(pkts[:]); n != 0 || sets[0].Expecting() {
			t.Fatal("reported twice")
		}
	}
	views[0].Expect(1, 1, 0)
	if sets[0].Arm() {
		t.Error("armed, though the word is there")
	}
	if views[0].Forget(); sets[0].Expecting() || sets[0].Poll(pkts[:]) != 0 {
		t.Error("what was forgotten is reported")
	}
}

// What another member has written over the head and the ends may be anything: no view reaches beyond them.
func TestLies(t *testing.T) {
	sets, views, _, mem := pair(t)
	var pkts [1]transport.Packet
	for _, lie := range []uint32{1, 2, 3, 1 << 31, math.MaxUint32} {
		headOf(mem).failed.Store(uint64(lie)<<32 | uint64(lie))
		headOf(mem).sleepers.Store(lie)
		for i := range 2 {
			endOf(mem, i).awaits.Store(lie)
			endOf(mem, i).says = lie
		}
		if f, why := views[0].Failed(); f != 0 && f != 1 || len(why) > transport.WhyMost {
			t.Errorf("member %d has failed", f)
		}
		views[0].Raise(0, 1)
		views[1].Fail(1, make([]byte, 2*transport.WhyMost))
		views[0].Expect(1, math.MaxUint64, 1)
		if sets[0].Arm() || sets[0].Poll(pkts[:]) != 1 {
			t.Error("that a member has failed ends no wait")
		}
	}
	headOf(mem).failed.Store(0)
	if f, _ := views[0].Failed(); f != -1 {
		t.Errorf("member %d has failed", f)
	}
}
