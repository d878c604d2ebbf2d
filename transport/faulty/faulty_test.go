package faulty

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/gorun-mpi/mpi/internal/wire"
	"github.com/gorun-mpi/mpi/transport"
	"github.com/gorun-mpi/mpi/transport/loop"
	"github.com/gorun-mpi/mpi/transport/transporttest"
)

// plans are one misfortune each, at chances that are felt, and all together.
var plans = map[string]Plan{
	"nothing":  {},
	"refuse":   {Refuse: 0.2, RefuseFor: 5},
	"delay":    {Delay: 0.3, DelayFor: 30},
	"stall":    {Stall: 0.2, StallFor: 30},
	"short":    {Short: 0.9},
	"spurious": {EarlyArm: 0.5, EarlyPark: 0.5},
	"reads":    {RefuseRegister: 0.5, FullGet: 0.4, LateGet: 0.5, LateFor: 20, FailGet: 0.4},
	"late":     {LateGet: 0.99, LateFor: 100},
}

// A wrapped device keeps every rule of the seam. Left out is only what the plans break on purpose.
func TestConformance(t *testing.T) {
	for seed := range int64(4) {
		plans[fmt.Sprintf("random%d", seed)] = Random(seed)
	}
	for name, plan := range plans {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			open := func(t *testing.T) transporttest.Pair {
				Explain(t, 1, plan)
				ds := loop.New(2)
				return transporttest.Pair{A: Wrap(ds[0], 1, plan), B: Wrap(ds[1], 2, plan)}
			}
			transporttest.Run(t, open, transporttest.ChecksKeys(), transporttest.Unreliable(), transporttest.Brief(),
				transporttest.Without("urgent-not-woken-by-plain", "Poll interrupts Parks while it holds packets back"),
				transporttest.Without("park-is-idle", "plans run at once, and the CPU time is the process's"),
				transporttest.Without("close-leaves-nothing", "plans run at once, and goroutines are the process's"),
				transporttest.Without("no-allocations", "payloads are copied into memory of their own"))
		})
	}
}

func TestConformanceNoGet(t *testing.T) {
	plan := Random(5)
	transporttest.Run(t, func(t *testing.T) transporttest.Pair {
		Explain(t, 5, plan)
		ds := loop.New(2, loop.NoGet())
		return transporttest.Pair{A: Wrap(ds[0], 5, plan), B: Wrap(ds[1], 6, plan)}
	}, transporttest.NoGet(), transporttest.Unreliable(), transporttest.Brief(),
		transporttest.Without("urgent-not-woken-by-plain", "Poll interrupts Parks while it holds packets back"),
		transporttest.Without("park-is-idle", "a Park that returns at once is not idle"),
		transporttest.Without("no-allocations", "payloads are copied into memory of their own"))
}

// pair is two loop devices wrapped with p, linked both ways.
func pair(t *testing.T, seed int64, p Plan) (a, b transport.Device, ab, ba transport.Link) {
	t.Helper()
	ds := loop.New(2)
	a, b = Wrap(ds[0], seed, p), Wrap(ds[1], seed, p)
	ab, err := a.Connect(context.Background(), 1, b.Address())
	ba, err2 := b.Connect(context.Background(), 0, a.Address())
	if err := errors.Join(err, err2); err != nil {
		t.Fatal(err)
	}
	return a, b, ab, ba
}

// trace is what a fixed sequence of calls saw.
func trace(t *testing.T, seed int64, p Plan) (out []string) {
	_, b, ab, ba := pair(t, seed, p)
	var pkts [4]transport.Packet
	src, dst := make([]byte, 10), make([]byte, 10)
	for i := range 300 {
		sent := ab.TrySend(&wire.Header{Kind: wire.FIN, ID: uint64(i)}, nil)
		out = append(out, fmt.Sprintf("sent %v", sent))
		for _, p := range pkts[:b.Poll(pkts[:])] {
			out = append(out, fmt.Sprintf("event %d id %d %v", p.Event, p.Header.ID, p.Err))
		}
		addr, key, ok := ab.(transport.Getter).Register(src)
		state, err := ba.(transport.Getter).TryGet(dst, addr, key, uint64(i))
		out = append(out, fmt.Sprintf("register %v get %d %v", ok, state, err))
		armed := b.Arm(transport.Any, false)
		b.Disarm()
		out = append(out, fmt.Sprintf("arm %v", armed))
	}
	return out
}

// A seed fixes the schedule, and another gives another.
func TestDeterministic(t *testing.T) {
	p := plans["reads"]
	p.Refuse, p.Delay, p.DelayFor, p.Stall, p.StallFor, p.Short, p.EarlyArm = 0.2, 0.2, 5, 0.1, 5, 0.3, 0.3
	first := trace(t, 1, p)
	if !slices.Equal(first, trace(t, 1, p)) {
		t.Error("the same seed and calls gave another schedule")
	}
	if slices.Equal(first, trace(t, 2, p)) {
		t.Error("another seed gave the same schedule")
	}
	// Every misfortune of the plan has happened: the plan is not words.
	for _, want := range []string{"sent false", "register false get 0 loop:", "get 2", "get 1", "get 0 <nil>", ErrInjected.Error(), "event 1", "arm false"} {
		if !slices.ContainsFunc(first, func(s string) bool { return bytes.Contains([]byte(s), []byte(want)) }) {
			t.Errorf("in 300 rounds there was never %q", want)
		}
	}
}

// A payload that is kept beyond the next Poll is found to be overwritten.
func TestPoison(t *testing.T) {
	_, b, ab, _ := pair(t, 1, Plan{})
	ab.TrySend(&wire.Header{Kind: wire.Eager}, []byte("kept"))
	var pkts [4]transport.Packet
	if n := b.Poll(pkts[:]); n != 1 || string(pkts[0].Payload) != "kept" {
		t.Fatalf("polled %d, %q", n, pkts[0].Payload)
	}
	kept := pkts[0].Payload
	if b.Poll(pkts[1:]); string(kept) == "kept" {
		t.Error("the payload is still readable after the next Poll")
	}
}

// Peers overtake each other and never themselves.
func TestReordersPeers(t *testing.T) {
	const peers, n = 3, 100
	ds := loop.New(peers + 1)
	d := Wrap(ds[0], 3, plans["delay"])
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

// A cut is one Down, after what had been taken before it; then silence, and sends that vanish.
func TestCut(t *testing.T) {
	for _, after := range []int{1, 10, 60} {
		p := Random(int64(after))
		p.Cuts = []Cut{{Peer: 0, After: after}}
		Explain(t, 7, p)
		ds := loop.New(2)
		b := Wrap(ds[1], 7, p)
		ab, err := ds[0].Connect(context.Background(), 1, b.Address())
		if err != nil {
			t.Fatal(err)
		}
		ba, err := b.Connect(context.Background(), 0, ds[0].Address())
		if err != nil {
			t.Fatal(err)
		}
		for i := range 100 {
			if !ab.TrySend(&wire.Header{Kind: wire.FIN, ID: uint64(i)}, nil) {
				t.Fatal("no room")
			}
		}
		var seen []transport.Packet
		pkts := make([]transport.Packet, 8)
		for range 100_000 {
			n := b.Poll(pkts)
			seen = append(seen, pkts[:n]...)
		}
		ds[0].Close() // the wrapped device's own Down must not be a second one
		for range 1000 {
			n := b.Poll(pkts)
			seen = append(seen, pkts[:n]...)
		}
		if len(seen) != after+1 {
			t.Fatalf("cut after %d packets: got %d events", after, len(seen))
		}
		if last := seen[after]; last.Event != transport.Down || last.Peer != 0 || !errors.Is(last.Err, transport.ErrPeerGone) {
			t.Errorf("last event %+v, want Down", last)
		}
		for range 1000 {
			if !ba.TrySend(&wire.Header{Kind: wire.FIN}, nil) {
				t.Fatal("a cut link refused")
			}
		}
		if _, err := ba.(transport.Getter).TryGet(make([]byte, 1), 0, 0, 0); !errors.Is(err, transport.ErrPeerGone) {
			t.Errorf("TryGet over a cut link: %v", err)
		}
	}
}

// bare hides the optional abilities of a link; able has them all.
type bare struct{ transport.Link }

type able struct{ transport.Getter }

func (able) PeerPolls() bool { return true }
func (able) PeerWaits() bool { return true }

type device struct {
	transport.Device
	link transport.Link
}

func (d *device) Connect(context.Context, int, []byte) (transport.Link, error) { return d.link, nil }

type memoryDevice struct{ *device }

func (memoryDevice) Alloc(n int) ([]byte, error) { return make([]byte, n), nil }
func (memoryDevice) Free([]byte) error           { return nil }

// Abilities are there if the wrapped device has them, and not otherwise.
func TestAbilities(t *testing.T) {
	ds := loop.New(1)
	l, err := ds[0].Connect(context.Background(), 0, ds[0].Address())
	if err != nil {
		t.Fatal(err)
	}
	g := l.(transport.Getter)
	for _, c := range []struct {
		link             transport.Link
		getter, presence bool
	}{{bare{l}, false, false}, {l, true, false}, {able{g}, true, true}, {struct {
		bare
		transport.Presence
	}{bare{l}, able{g}}, false, true}} {
		w, err := Wrap(&device{ds[0], c.link}, 1, Plan{}).Connect(context.Background(), 0, nil)
		if err != nil {
			t.Fatal(err)
		}
		_, getter := w.(transport.Getter)
		p, presence := w.(transport.Presence)
		if getter != c.getter || presence != c.presence || presence && !p.PeerPolls() {
			t.Errorf("%T: Getter %v, Presence %v", c.link, getter, presence)
		}
	}
	if _, ok := Wrap(&device{Device: ds[0]}, 1, Plan{}).(transport.Memory); ok {
		t.Error("a device without memory became a transport.Memory")
	}
	if _, ok := Wrap(memoryDevice{&device{Device: ds[0]}}, 1, Plan{}).(transport.Memory); !ok {
		t.Error("a transport.Memory is none any more")
	}
}

func TestPlanString(t *testing.T) {
	p := Plan{Refuse: 0.25, RefuseFor: 3, Cuts: []Cut{{1, 9}}}
	if got, want := p.String(), "{Refuse: 0.25 for 3, cut from 1 after 9}"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
