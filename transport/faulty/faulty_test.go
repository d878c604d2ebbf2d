package faulty_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/gorun-mpi/mpi/internal/wire"
	"github.com/gorun-mpi/mpi/transport"
	"github.com/gorun-mpi/mpi/transport/faulty"
	"github.com/gorun-mpi/mpi/transport/loop"
	"github.com/gorun-mpi/mpi/transport/transporttest"
)

// plans are one misfortune each, at chances that are felt, and some together.
var plans = map[string]faulty.Plan{
	"nothing": {},
	"refuse":  {Refuse: 0.2, RefuseFor: 5},
	"delay":   {Delay: 0.3, DelayFor: 30},
	"stall":   {Stall: 0.2, StallFor: 30},
	"short":   {Short: 0.9},
	"early":   {EarlyArm: 0.5, EarlyWake: 0.5},
	"rma":     {RefuseRegister: 0.5, FullRMA: 0.4, LateRMA: 0.5, LateFor: 20, FailRMA: 0.4},
	"late":    {LateRMA: 0.99, LateBack: 0.99, LateFor: 100},
	"offload": {RefusePost: 0.5, LateBack: 0.5, LateFor: 20, IgnorePlace: 0.5, LiePresence: 0.5},
}

const everything = transporttest.Get | transporttest.Put | transporttest.PutNote | transporttest.Atomics |
	transporttest.ZeroCopy | transporttest.Presence | transporttest.Offload | transporttest.Memory |
	transporttest.Import | transporttest.Introducer | transporttest.Refused | transporttest.Via | transporttest.Boards

func fullPair(*testing.T) transporttest.Pair {
	d := newFull()
	return transporttest.Pair{A: d[0], B: d[1]}
}

// The device with every ability keeps every rule.
func TestFull(t *testing.T) {
	transporttest.Run(t, fullPair, transporttest.Has(everything), transporttest.ChecksKeys(), transporttest.Brief(),
		transporttest.Without("no-allocations", "it is made for tests, and allocates"))
}

// So it does when it misbehaves: every ability is passed on, and no misfortune breaks the seam.
func TestConformance(t *testing.T) {
	all := map[string]faulty.Plan{}
	if !testing.Short() { // a random plan is several of these
		maps.Copy(all, plans)
	}
	for seed := range int64(4) {
		all[fmt.Sprintf("random%d", seed)] = faulty.Random(seed)
	}
	for name, plan := range all {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			faulty.Explain(t, 1, plan)
			open := func(t *testing.T) transporttest.Pair {
				p := fullPair(t)
				return transporttest.Pair{A: faulty.Wrap(p.A, 1, plan), B: faulty.Wrap(p.B, 2, plan)}
			}
			transporttest.Run(t, open, transporttest.Has(everything), transporttest.ChecksKeys(),
				transporttest.Unreliable(), transporttest.Brief(),
				transporttest.Without("close-leaves-nothing", "plans run at once, and goroutines are the process's"))
		})
	}
}

// What the wrapped device cannot do is not invented.
func TestNoAbility(t *testing.T) {
	transporttest.RunFaulty(t, func(*testing.T) transporttest.Pair {
		ds := loop.NewNoGet(2)
		for _, d := range ds {
			d.Facts().Boards = nil
		}
		return transporttest.Pair{A: ds[0], B: ds[1]}
	})
}

// pair is two full devices wrapped with p, linked both ways.
func pair(t *testing.T, seed int64, p faulty.Plan) (a, b transport.Device, ab, ba transport.Link) {
	t.Helper()
	ds := newFull()
	a, b = faulty.Wrap(ds[0], seed, p), faulty.Wrap(ds[1], seed, p)
	ab, err := a.Connect(context.Background(), 1, b.Address())
	ba, err2 := b.Connect(context.Background(), 0, a.Address())
	if err := errors.Join(err, err2); err != nil {
		t.Fatal(err)
	}
	return a, b, ab, ba
}

// trace is what a fixed sequence of calls saw.
func trace(t *testing.T, seed int64, p faulty.Plan) (out []string) {
	a, b, ab, ba := pair(t, seed, p)
	say := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	b.Facts().Wake[0].Notify(func(bool) { say("woken") })
	mem, rma := transport.HostMem(make([]byte, 1000)), ba.Caps().RMA
	pkts := make([]transport.Packet, 16)
	for i := range uint64(500) {
		say("sent %v", ab.TrySend(&wire.Header{Kind: wire.FIN, ID: i}, nil))
		ba.Caps().ZeroCopy.Place(i, 1, mem, 0)
		say("zero-copy %v", ab.Caps().ZeroCopy.Send(&wire.Header{Kind: wire.Data, Key: i, Tag: 1}, mem.Part(0, 8)))
		for _, d := range []transport.Device{a, b} {
			for _, p := range pkts[:d.Poll(pkts)] {
				say("event %d, %v %d %d, %v", p.Event, p.Header.Kind, p.Header.ID, p.Cookie, p.Err)
			}
		}
		addr, key, ok := ab.Caps().RMA.Register(mem, transport.Readable|transport.Writable)
		say("register %v", ok)
		names := []string{"get", "put", "put-note", "fetch-add", "compare-swap"}
		for n, begin := range []func(cookie uint64) (transport.State, error){
			func(cookie uint64) (transport.State, error) { return rma.Get(mem.Part(0, 8), addr, key, cookie) },
			func(cookie uint64) (transport.State, error) { return rma.Put(mem, addr, key, cookie) },
			func(cookie uint64) (transport.State, error) { return rma.PutNote(mem, addr, key, 1, cookie) },
			func(cookie uint64) (transport.State, error) { return rma.FetchAdd(1, addr, key, cookie) },
			func(cookie uint64) (transport.State, error) { return rma.CompareSwap(1, 2, addr, key, cookie) },
		} {
			state, err := begin(i)
			say("%s %d %v", names[n], state, err)
		}
		say("post %d", b.Facts().Offload.Post(i, transport.MaskExact, mem, i))
		b.Facts().Offload.Cancel(i)
		say("presence %v", ba.Caps().Presence.Polls())
		say("arm %v", b.Arm(transport.Any))
		b.Disarm()
	}
	return out
}

// A seed fixes the schedule, and another gives another.
func TestDeterministic(t *testing.T) {
	p := faulty.Mild
	p.Delay, p.Stall, p.Short, p.EarlyArm, p.LateFor, p.DelayFor = 0.05, 0.05, 0.05, 0.2, 3, 3
	first := trace(t, 1, p)
	if !slices.Equal(first, trace(t, 1, p)) {
		t.Error("the same seed and calls gave another schedule")
	}
	if slices.Equal(first, trace(t, 2, p)) {
		t.Error("another seed gave the same schedule")
	}
	// Every misfortune of the plan has happened: the plan is not words.
	const injected = "faulty: injected failure"
	for _, want := range []string{"sent false", "zero-copy false", "woken", "arm false", "register false",
		"get 0 <nil>", "get 0 " + injected, "get 1", "get 2", "put 0 " + injected, "put-note 0 " + injected,
		"fetch-add 0 " + injected, "compare-swap 0 " + injected, "event 4, ", injected + "\n",
		"event 0, data", "event 6, ", "post 0", "post 1", "post 2", "event 9, ", "presence true", "presence false"} {
		if !strings.Contains(strings.Join(first, "\n")+"\n", want) {
			t.Errorf("in 500 rounds there was never %q", want)
		}
	}
}

// A payload that is kept beyond the next Poll is found to be overwritten.
func TestPoison(t *testing.T) {
	_, b, ab, _ := pair(t, 1, faulty.Plan{})
	ab.TrySend(&wire.Header{Kind: wire.Eager}, []byte("kept"))
	var pkts [4]transport.Packet
	n := b.Poll(pkts[:])
	if n != 1 || string(pkts[0].Payload) != "kept" || pkts[0].Err == nil || pkts[0].Header.ID == 0 {
		t.Fatalf("polled %d, %+v; want a payload, and rubbish where it is not used", n, pkts[0])
	}
	kept := pkts[0].Payload
	if b.Poll(pkts[1:]); string(kept) == "kept" {
		t.Error("the payload is still readable after the next Poll")
	}
}

// Peers overtake each other and never themselves.
func TestReordersPeers(t *testing.T) {
	const peers, n = 3, 30
	ds := loop.New(peers + 1)
	d := faulty.Wrap(ds[0], 3, plans["delay"])
	links := make([]transport.Link, peers)
	for i := range links {
		l, err := ds[i+1].Connect(context.Background(), 0, d.Address())
		if err != nil {
			t.Fatal(err)
		}
		links[i] = l
	}
	for i := range n {
		for _, l := range links {
			if !l.TrySend(&wire.Header{Kind: wire.Eager, Tag: int32(i)}, nil) {
				t.Fatal("no room")
			}
		}
	}
	var next [peers + 1]int32
	overtaken := 0
	pkts := make([]transport.Packet, 8)
	for total := 0; total < peers*n; {
		for _, p := range pkts[:d.Poll(pkts)] {
			if p.Header.Tag != next[p.Peer] {
				t.Fatalf("peer %d: packet %d after %d", p.Peer, p.Header.Tag, next[p.Peer]-1)
			}
			next[p.Peer]++
			total++
			for _, o := range next[1:] {
				if next[p.Peer] > o+1 {
					overtaken++
				}
			}
		}
	}
	if overtaken == 0 {
		t.Error("the peers took turns; nothing was reordered")
	}
}

// A cut is one Down, after what had been taken before it; then silence, and sends that vanish. Abilities that would
// keep buffers beyond Down are not passed on.
func TestCut(t *testing.T) {
	for _, after := range []int{1, 10, 60} {
		p := faulty.Random(int64(after))
		p.Cuts = []faulty.Cut{{Peer: 0, After: after}}
		faulty.Explain(t, 7, p)
		ds := newFull()
		b := faulty.Wrap(ds[1], 7, p)
		ab, err := ds[0].Connect(context.Background(), 1, b.Address())
		ba, err2 := b.Connect(context.Background(), 0, ds[0].Address())
		if err := errors.Join(err, err2); err != nil {
			t.Fatal(err)
		}
		if ba.Caps().ZeroCopy != nil || b.Facts().Offload != nil {
			t.Error("a link that is to be cut has ZeroCopy, or its device Offload")
		}
		if !ba.Caps().Offload {
			t.Error("the peer's device matches, and the link does not say so")
		}
		var seen []transport.Packet
		pkts := make([]transport.Packet, 8)
		for i, sent := 0, uint64(0); i < 10_000; i++ {
			kind := wire.FIN
			if sent%2 == 0 {
				kind = wire.Eager // comes as a packet, though the device can match it
			}
			if sent < 100 && ab.TrySend(&wire.Header{Kind: kind, ID: sent}, nil) {
				sent++
			}
			seen = append(seen, pkts[:b.Poll(pkts)]...)
		}
		ds[0].Close() // the wrapped device's own Down must not be a second one
		for range 1000 {
			seen = append(seen, pkts[:b.Poll(pkts)]...)
		}
		if len(seen) != after+1 {
			t.Fatalf("cut after %d packets: got %d events", after, len(seen))
		}
		for _, p := range seen[:after] {
			if p.Event != transport.Arrived {
				t.Errorf("event %d before the cut", p.Event)
			}
		}
		last := seen[after]
		if last.Event != transport.Down || last.Peer != 0 || !errors.Is(last.Err, transport.ErrPeerGone) {
			t.Errorf("last event %+v, want Down", last)
		}
		for range 1000 {
			if !ba.TrySend(&wire.Header{Kind: wire.FIN}, nil) {
				t.Fatal("a cut link refused")
			}
		}
		if _, err := ba.Caps().RMA.Get(transport.Mem{}, 0, 0, 0); !errors.Is(err, transport.ErrPeerGone) {
			t.Errorf("Get over a cut link: %v", err)
		}
		if n := ba.Caps().RMA.GetSome(make([]transport.Read, 2)); n != 0 {
			t.Errorf("%d READs of several over a cut link", n)
		}
	}
}

// What the plan says of READs goes for several in one call: the first that it stops ends the call, and one that fails
// leaves a part of its memory overwritten.
func TestSeveralReads(t *testing.T) {
	for _, p := range []faulty.Plan{{FailRMA: 0.3}, {FullRMA: 0.3}, {LateRMA: 0.3, LateFor: 2}} {
		_, _, ab, ba := pair(t, 1, p)
		from := bytes.Repeat([]byte{7}, 16)
		addr, key, _ := ab.Caps().RMA.Register(transport.HostMem(from), transport.Readable)
		var counts [4]int
		overwritten := 0
		for range 200 {
			into, reads := make([]byte, 3*16), []transport.Read(nil)
			for i := range 3 {
				reads = append(reads, transport.Read{Dst: transport.HostMem(into[i*16:][:16]), Addr: addr, Key: key})
			}
			n := ba.Caps().RMA.GetSome(reads)
			counts[n]++
			if !bytes.Equal(into[:n*16], bytes.Repeat(from, n)) {
				t.Fatalf("%v: %d are done, and have read %v", p, n, into)
			}
			if !bytes.Equal(into[n*16:], make([]byte, (3-n)*16)) {
				overwritten++
			}
		}
		if slices.Contains(counts[:], 0) || (overwritten > 0) != (p.FailRMA > 0) {
			t.Errorf("%v: of 200 calls so many have done 0 to 3 READs: %d; %d have left other bytes", p, counts,
				overwritten)
		}
	}
}

// A device that dies by plan is closed for its peers after so many packets either way, and sees Down once of each peer
// that it has met and that has not gone before.
func TestDeath(t *testing.T) {
	x := new(faulty.Death)
	ds := loop.New(4)
	d := faulty.Wrap(ds[0], 1, faulty.Plan{Death: x})
	var links [4]transport.Link
	for peer := 1; peer < 4; peer++ {
		var err error
		if links[peer], err = d.Connect(context.Background(), peer, ds[peer].Address()); err != nil {
			t.Fatal(err)
		}
	}
	back, err := ds[1].Connect(context.Background(), 0, d.Address())
	if err != nil {
		t.Fatal(err)
	}
	send := func(l transport.Link) {
		if !l.TrySend(&wire.Header{Kind: wire.FIN}, nil) {
			t.Error("a link refused")
		}
	}
	poll := func(d transport.Device) (packets int, down []int32) {
		var pkts [16]transport.Packet
		for _, p := range pkts[:d.Poll(pkts[:])] {
			if p.Event != transport.Down {
				packets++
				continue
			}
			if down = append(down, p.Peer); !errors.Is(p.Err, transport.ErrPeerGone) {
				t.Errorf("Down with %v", p.Err)
			}
		}
		slices.Sort(down)
		return packets, down
	}
	expect := func(what string, d transport.Device, packets int, down ...int32) {
		t.Helper()
		if n, got := poll(d); n != packets || !slices.Equal(got, down) {
			t.Errorf("%s: %d packets and Down of %v, want %d and %v", what, n, got, packets, down)
		}
	}
	send(links[3])
	ds[3].Close()
	expect("a peer has gone", d, 0, 3)
	x.After(1)
	x.After(0)
	send(links[1])
	expect("the device is spared", ds[1], 1)
	x.After(3)
	send(links[1])
	send(back)
	expect("after two of three packets", d, 1)
	if x.Came() {
		t.Error("the device has died too early")
	}
	send(links[2])
	if !x.Came() {
		t.Error("the device has not died")
	}
	send(links[1])
	send(links[2])
	send(back)
	expect("rank 1, which has got one packet", ds[1], 1, 0)
	expect("rank 2, likewise", ds[2], 1, 0)
	expect("the dead rank", d, 0, 1, 2)
	for _, any := range []transport.Device{ds[1], ds[2], d} {
		expect("later", any, 0)
	}
	if _, err := d.Connect(context.Background(), 2, ds[2].Address()); !errors.Is(err, transport.ErrPeerGone) {
		t.Errorf("Connect of a dead rank: %v", err)
	}
	if _, err := links[1].Caps().RMA.Get(transport.Mem{}, 0, 0, 0); !errors.Is(err, transport.ErrPeerGone) {
		t.Errorf("Get of a dead rank: %v", err)
	}
}

func TestPlanString(t *testing.T) {
	p := faulty.Plan{Refuse: 0.25, RefuseFor: 3, Cuts: []faulty.Cut{{1, 9}}}
	if got, want := p.String(), "{Refuse: 0.25 for 3, cut from 1 after 9}"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
