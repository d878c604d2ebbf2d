package multi

import (
	"testing"

	"github.com/gorun-mpi/mpi/transport"
)

// A device that has nothing is skipped while another is busy, and polled again as the rule says.
func TestIdleDeviceIsSkipped(t *testing.T) {
	a, b := newFake(t, "a"), newFake(t, "b")
	d := joined(t, a, b)
	pkts := make([]transport.Packet, 4)
	poll := func(n int, busy *fake) (fromA, fromB int) {
		for range n {
			if busy != nil {
				busy.arrive(packet(1, 0))
			}
			if d.Poll(pkts) == 0 && busy == a {
				t.Fatal("polled nothing, and the preferred device has something")
			}
		}
		return a.count(), b.count()
	}
	want := func(what string, gotA, gotB, wantA, wantB int) {
		t.Helper()
		if gotA != wantA || gotB != wantB {
			t.Errorf("%s: a was polled %d times and b %d, want %d and %d", what, gotA, gotB, wantA, wantB)
		}
	}
	is := func(what string, n int, busy *fake, wantA, wantB int) {
		t.Helper()
		gotA, gotB := poll(n, busy)
		want(what, gotA, gotB, wantA, wantB)
	}
	is("no device has anything", 1000, nil, 1000, 1000)
	is("a begins: b has been idle for long", 16*skipPeriod, a, 16*skipPeriod, 16)
	b.arrive(packet(2, 1)) // found when b is polled next, after which each Poll polls b
	gotA, gotB := poll(skipPeriod+skipAfter-1, a)
	if gotA != skipPeriod+skipAfter-1 || gotB < skipAfter {
		t.Errorf("b has returned something: a was polled %d times and b %d", gotA, gotB)
	}
	poll(skipAfter, a)
	is("a is busy and b idle", 10*skipPeriod, a, 10*skipPeriod, 10)
	is("both pause: b is skipped until it has been idle for long", skipAfter, nil, skipAfter, skipAfter/skipPeriod)
	is("both pause", 100, nil, 100, 100)
	is("b is busy: a is the preferred device and never skipped", 10*skipPeriod, b, 10*skipPeriod, 10*skipPeriod)
}

// A rank that has slept polls all devices, and so does one that could not sleep because something is there.
func TestAllArePolledAfterSleep(t *testing.T) {
	a, b := newFake(t, "a"), newFake(t, "b")
	d := joined(t, a, b)
	pkts := make([]transport.Packet, 4)
	busy := func() {
		for range skipAfter + 2*skipPeriod {
			a.arrive(packet(1, 0))
			d.Poll(pkts)
		}
		b.skipOne(t, d, pkts, a)
	}
	busy()
	if !d.Arm(transport.Any, true) {
		t.Fatal("Arm returns false and nothing is there")
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

// skipOne makes sure that f has just been polled, so that it would be skipped next.
func (f *fake) skipOne(t *testing.T, d *sleeper, pkts []transport.Packet, busy *fake) {
	t.Helper()
	f.count()
	for range skipPeriod {
		busy.arrive(packet(1, 0))
		if d.Poll(pkts); f.count() == 1 {
			return
		}
	}
	t.Fatalf("%s is never polled", f.name)
}

// A device that fills the slice goes last next time: a flood by one does not starve another.
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

// A flood by the preferred device does not starve an idle one.
func TestFloodByTheFirst(t *testing.T) {
	a, b := newFake(t, "a"), newFake(t, "b")
	d := joined(t, a, b)
	pkts := make([]transport.Packet, 8)
	for range 10 * skipAfter {
		a.arrive(packets(len(pkts))...)
		d.Poll(pkts)
	}
	b.arrive(packet(2, 0))
	for i := 0; len(b.pkts) > 0; i++ {
		if i > 2*skipPeriod {
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

// A flood of short messages by the first device keeps no other device from its turn, nor the end of a peer from being
// the last that is heard of it.
func TestShortLeavesTurns(t *testing.T) {
	a, b := newFake(t, "a"), newFake(t, "b")
	a.shorts = true
	d := joined(t, a, b)
	pkts := make([]transport.Packet, 4)
	shorts := 0
	once := func() (got []transport.Packet) {
		a.arrive(packet(1, 0))
		if _, _, found := d.Facts().Short(); found == transport.FoundShort {
			shorts++
			return nil
		}
		return pkts[:d.Poll(pkts)]
	}
	for range 100 {
		for range 3 * skipAfter {
			once()
		}
		b.arrive(packet(2, 1))
		for i := 0; ; i++ {
			if i > 2*skipPeriod {
				t.Fatalf("b has something, and is not polled in %d turns", i)
			}
			if got := once(); len(got) > 0 && got[len(got)-1].Peer == 2 {
				break
			}
		}
	}
	if shorts < 1000 {
		t.Errorf("%d messages came by Short", shorts)
	}
	a.arrive(transport.Packet{Event: transport.Down, Peer: 1, Err: transport.ErrPeerGone})
	for len(a.pkts) > 1 {
		d.Poll(pkts)
	}
	d.Poll(pkts)
	a.arrive(packet(1, 0))
	if _, _, found := d.Facts().Short(); found != transport.FoundOther {
		t.Errorf("Short of a peer that is gone: %d", found)
	}
}
