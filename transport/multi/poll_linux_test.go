package multi

import (
	"testing"

	"github.com/gorun-mpi/mpi/transport"
)

// A device that has nothing is skipped while another is busy, and asked again as the rule says.
func TestQuietDeviceIsSkipped(t *testing.T) {
	a, b := newFake(t, "a"), newFake(t, "b")
	d := joined(t, a, b)
	pkts := make([]transport.Packet, 4)
	poll := func(n int, busy *fake) (fromA, fromB int) {
		for range n {
			if busy != nil {
				busy.arrive(packet(1, 0))
			}
			if d.Poll(pkts) == 0 && busy == a {
				t.Fatal("polled nothing, and the preferred one has something")
			}
		}
		return a.count(), b.count()
	}
	want := func(what string, gotA, gotB, wantA, wantB int) {
		t.Helper()
		if gotA != wantA || gotB != wantB {
			t.Errorf("%s: a was asked %d times and b %d, want %d and %d", what, gotA, gotB, wantA, wantB)
		}
	}
	is := func(what string, n int, busy *fake, wantA, wantB int) {
		t.Helper()
		gotA, gotB := poll(n, busy)
		want(what, gotA, gotB, wantA, wantB)
	}
	is("nobody gives anything", 1000, nil, 1000, 1000)
	is("a begins: b has been quiet for long", 16*oneIn, a, 16*oneIn, 16)
	b.arrive(packet(2, 1)) // found when it is b's turn, from when on b is asked each time
	gotA, gotB := poll(oneIn+restAfter-1, a)
	if gotA != oneIn+restAfter-1 || gotB < restAfter {
		t.Errorf("b has given something: a was asked %d times and b %d", gotA, gotB)
	}
	poll(restAfter, a)
	is("a is busy and b quiet", 10*oneIn, a, 10*oneIn, 10)
	is("both pause: b is skipped until it has been quiet for long", restAfter, nil, restAfter, restAfter/oneIn)
	is("both pause", 100, nil, 100, 100)
	is("b is busy: a is the preferred one, and asked all the same", 10*oneIn, b, 10*oneIn, 10*oneIn)
}

// Who has slept asks all, and so does who could not sleep because of what is there.
func TestAllAreAskedAfterSleep(t *testing.T) {
	a, b := newFake(t, "a"), newFake(t, "b")
	d := joined(t, a, b)
	pkts := make([]transport.Packet, 4)
	busy := func() {
		for range restAfter + 2*oneIn {
			a.arrive(packet(1, 0))
			d.Poll(pkts)
		}
		b.skipOne(t, d, pkts, a)
	}
	busy()
	if !d.Arm(transport.Any, true) {
		t.Fatal("Arm says that something is there")
	}
	b.arrive(packet(2, 0))
	d.Park(true)
	d.Disarm()
	if n := d.Poll(pkts); n != 1 || pkts[0].Peer != 2 {
		t.Errorf("polled %d after the sleep that b ended", n)
	}
	busy()
	b.arrive(packet(2, 0))
	if d.Arm(transport.Any, true) {
		t.Fatal("Arm does not see what b has")
	}
	if n := d.Poll(pkts); n != 1 || pkts[0].Peer != 2 {
		t.Errorf("polled %d after Arm had seen what b has", n)
	}
}

// skipOne makes sure that f has just been asked, so that it would be skipped next.
func (f *fake) skipOne(t *testing.T, d *sleeper, pkts []transport.Packet, busy *fake) {
	t.Helper()
	f.count()
	for range oneIn {
		busy.arrive(packet(1, 0))
		if d.Poll(pkts); f.count() == 1 {
			return
		}
	}
	t.Fatalf("%s is never asked", f.name)
}

// A device that fills the slice goes last next time: none is kept waiting by another's flood.
func TestFloodIsFair(t *testing.T) {
	a, b, c := newFake(t, "a"), newFake(t, "b"), newFake(t, "c")
	d := joined(t, a, b, c)
	a.arrive(packets(1000)...)
	b.arrive(packets(1000)...)
	c.arrive(packet(3, 7))
	pkts := make([]transport.Packet, 8)
	for round := 0; ; round++ {
		if round == 3 {
			t.Fatal("c has waited for 3 polls")
		}
		if n := d.Poll(pkts); pkts[0].Peer == 3 || pkts[n-1].Peer == 3 {
			break
		}
	}
	for range 20 {
		if n := d.Poll(pkts); n != len(pkts) {
			t.Fatalf("polled %d of many", n)
		}
	}
	if left := len(a.pkts) - len(b.pkts); left < -len(pkts) || left > len(pkts) {
		t.Errorf("a has %d packets left and b %d", len(a.pkts), len(b.pkts))
	}
}

// A flood by the preferred device does not keep a quiet one waiting for ever.
func TestFloodByTheFirst(t *testing.T) {
	a, b := newFake(t, "a"), newFake(t, "b")
	d := joined(t, a, b)
	pkts := make([]transport.Packet, 8)
	for range 10 * restAfter {
		a.arrive(packets(len(pkts))...)
		d.Poll(pkts)
	}
	b.arrive(packet(2, 0))
	for i := 0; len(b.pkts) > 0; i++ {
		if i > 2*oneIn {
			t.Fatalf("b has waited for %d polls", i)
		}
		a.arrive(packets(len(pkts))...)
		d.Poll(pkts)
	}
}

func TestPollAllocatesNothing(t *testing.T) {
	a, b := newFake(t, "a"), newFake(t, "b")
	d := joined(t, a, b)
	pkts := make([]transport.Packet, 8)
	if n := testing.AllocsPerRun(1000, func() {
		d.Poll(pkts)
		d.Arm(transport.Any, false)
		d.Disarm()
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
