package multi

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gorun-mpi/mpi/internal/testkit/leak"
	"github.com/gorun-mpi/mpi/internal/wire"
	"github.com/gorun-mpi/mpi/transport"
	"github.com/gorun-mpi/mpi/transport/transporttest"
)

const abilities = transporttest.Get | transporttest.Put | transporttest.Presence | transporttest.Memory |
	transporttest.Introducer | transporttest.Refused | transporttest.Via | transporttest.Short | transporttest.ConnectNow |
	transporttest.Boards

func pair(with func(t *testing.T, rank int) []transport.Device) func(*testing.T) transporttest.Pair {
	return func(t *testing.T) transporttest.Pair {
		rank := func(rank int) transport.Device {
			d, err := New(nil, with(t, rank)...)
			if err != nil {
				t.Fatal(err)
			}
			return d
		}
		return transporttest.Pair{A: rank(0), B: rank(1), Third: func() transport.Device { return rank(2) }}
	}
}

func alone(_ *testing.T, rank int) []transport.Device { return []transport.Device{newShm(rank, "")} }

func TestConformance(t *testing.T) {
	transporttest.Run(t, pair(alone), transporttest.Has(abilities), transporttest.Brief())
}

func TestConformanceFaulty(t *testing.T) {
	transporttest.RunFaulty(t, pair(alone), transporttest.Has(abilities&^transporttest.Short&^transporttest.ConnectNow))
}

// Before shared memory there is a device that connects no peer, so that shared memory is the one that is skipped.
func TestConformanceSecond(t *testing.T) {
	transporttest.Run(t, pair(func(t *testing.T, rank int) []transport.Device {
		return []transport.Device{newFake(t, "nowhere"), newShm(rank, "")}
	}), transporttest.Has(abilities&^transporttest.Short&^transporttest.ConnectNow), transporttest.Brief())
}

func TestNewRefuses(t *testing.T) {
	a, b := newFake(t, "a"), newFake(t, "b")
	long := newFake(t, "long")
	long.address = strings.Repeat("x", maxAddress+1)
	for what, devs := range map[string][]transport.Device{
		"nothing":        nil,
		"the same name":  {a, b, newFake(t, "a")},
		"no name":        {a, newFake(t, "")},
		"a long name":    {newFake(t, strings.Repeat("n", maxName+1))},
		"too many":       slices.Repeat([]transport.Device{a}, maxDevices+1),
		"a long address": {long},
	} {
		if d, err := New(nil, devs...); !errors.Is(err, transport.ErrUnavailable) || d != nil {
			t.Errorf("%s: %v, %v", what, d, err)
		}
	}
}

func TestConnect(t *testing.T) {
	a, b, c := newFake(t, "a"), newFake(t, "b"), newFake(t, "c")
	var tried []string
	var links [3]link
	answer := map[string]error{}
	for i, f := range []*fake{a, b, c} {
		f.connect = func(peer int, address []byte) (transport.Link, error) {
			tried = append(tried, fmt.Sprintf("%s %d %s", f.name, peer, address))
			if err := answer[f.name]; err != nil {
				return nil, err
			}
			return &links[i], nil
		}
	}
	d := joined(t, a, b, c)
	offered := encode([]namedAddress{{"c", []byte("C")}, {"x", []byte("X")}, {"b", []byte("B")}})
	connect := func(peer int) (transport.Link, error) {
		tried = nil
		return d.Connect(context.Background(), peer, offered)
	}

	// the devices that the peer has too, in this rank's order; after an error the next
	answer["b"] = fmt.Errorf("%w: too far", transport.ErrUnavailable)
	if l, err := connect(1); l != &links[2] || err != nil || !slices.Equal(tried, []string{"b 1 B", "c 1 C"}) {
		t.Errorf("connecting to 1: %v, %v after %q", l, err, tried)
	}
	// a peer stays with the device that connected it first, also if another could now
	answer["b"] = nil
	if l, err := connect(1); l != &links[2] || err != nil || !slices.Equal(tried, []string{"c 1 C"}) {
		t.Errorf("connecting to 1 again: %v, %v after %q", l, err, tried)
	}
	if l, err := connect(2); l != &links[1] || err != nil || !slices.Equal(tried, []string{"b 2 B"}) {
		t.Errorf("connecting to 2: %v, %v after %q", l, err, tried)
	}
	// all fail: each error is in the text, and the last one is what errors.Is finds
	answer["b"] = fmt.Errorf("%w: too far", transport.ErrUnavailable)
	for _, last := range []error{transport.ErrTimeout, transport.ErrPeerGone} {
		answer["c"] = fmt.Errorf("%w: it was asked", last)
		_, err := connect(3)
		if !errors.Is(err, last) || errors.Is(err, transport.ErrUnavailable) {
			t.Errorf("%v is not %v", err, last)
		}
		for _, part := range []string{"by b:", "too far", "by c:", "it was asked"} {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%q does not say %q", err, part)
			}
		}
	}
	// nothing in common, and nonsense
	for _, address := range [][]byte{encode([]namedAddress{{"x", []byte("X")}}), nil, []byte("\x03shm")} {
		tried = nil
		_, err := d.Connect(context.Background(), 4, address)
		if !errors.Is(err, transport.ErrUnavailable) || tried != nil {
			t.Errorf("address %q: %v after %q", address, err, tried)
		}
	}
}

// Where a peer can be reached by a transport that did not open here, the error says why it did not. The class of the
// error is the last tried device's.
func TestConnectSaysWhatDidNotOpen(t *testing.T) {
	a := newFake(t, "a")
	a.connect = func(int, []byte) (transport.Link, error) { return nil, fmt.Errorf("%w: slow", transport.ErrTimeout) }
	d, err := New([]Unopened{{"b", errors.New("all ports are taken")}, {"c", errors.New("no card")}}, a)
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		theirs   []namedAddress
		is       error
		want     []string
		unwanted string
	}{
		{[]namedAddress{{"b", nil}}, transport.ErrUnavailable, []string{"by b, which did not open", "all ports are taken"},
			"no card"},
		{[]namedAddress{{"b", nil}, {"a", nil}}, transport.ErrTimeout, []string{"all ports are taken", "by a: ", "slow"},
			"no card"},
		{[]namedAddress{{"x", nil}}, transport.ErrUnavailable, []string{`can be reached by "x", this rank uses a`},
			"all ports are taken"},
	} {
		_, err := d.Connect(context.Background(), 1, encode(tc.theirs))
		if !errors.Is(err, tc.is) || strings.Contains(err.Error(), tc.unwanted) {
			t.Errorf("%v: %v", tc.theirs, err)
		}
		for _, want := range tc.want {
			if !strings.Contains(fmt.Sprint(err), want) {
				t.Errorf("%v: %v does not say %q", tc.theirs, err, want)
			}
		}
	}
}

// Connect does not try the next device after its context has ended.
func TestConnectEndsWithItsContext(t *testing.T) {
	a, b := newFake(t, "a"), newFake(t, "b")
	ctx, cancel := context.WithCancel(context.Background())
	a.connect = func(int, []byte) (transport.Link, error) { cancel(); return nil, ctx.Err() }
	b.connect = func(int, []byte) (transport.Link, error) {
		t.Error("the second is tried")
		return nil, ctx.Err()
	}
	d := joined(t, a, b)
	if _, err := d.Connect(ctx, 1, d.Address()); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// Shared memory fails at once for a rank on another host, and leaves nothing behind.
func TestConnectToAnotherHost(t *testing.T) {
	gone := newShm(1, "")
	address := slices.Clone(gone.Address())
	gone.Close() // the same for the sender: no process has that socket
	b := newFake(t, "b")
	want := &link{}
	b.connect = func(int, []byte) (transport.Link, error) { return want, nil }
	d := joined(t, newShm(0, ""), b)
	files := leak.Files()
	for range 100 {
		l, err := d.Connect(context.Background(), 1, encode([]namedAddress{{"shm", address}, {"b", nil}}))
		if l != want || err != nil {
			t.Fatal(l, err)
		}
		delete(d.chosen, 1)
	}
	if n := leak.Files(); n > files {
		t.Errorf("%d descriptors, there were %d", n, files)
	}
}

// The links are those of the devices: a send is one dynamic call.
func TestLinksAreBare(t *testing.T) {
	a, b := joined(t, newShm(0, "")), joined(t, newShm(1, ""))
	l, err := a.Connect(context.Background(), 1, b.Address())
	if err != nil {
		t.Fatal(err)
	}
	if name := fmt.Sprintf("%T", l); name != "*shm.link" {
		t.Errorf("a link is a %s", name)
	}
}

// A link is made at once by the first device, or by none; and not by it where another has connected the peer before.
func TestConnectNow(t *testing.T) {
	a, b := newFake(t, "a"), newFake(t, "b")
	offered := func(names ...string) []byte {
		var list []namedAddress
		for _, n := range names {
			list = append(list, namedAddress{n, []byte("at " + n)})
		}
		return encode(list)
	}
	made, later := &link{}, false
	able := func(peer int, address []byte) transport.Link {
		if string(address) != "at a" {
			t.Errorf("rank %d at %q", peer, address)
		}
		if peer == 3 && !later {
			return nil
		}
		return made
	}
	b.connectNow = func(int, []byte) transport.Link { t.Error("the second device is asked"); return made }
	b.connect = func(int, []byte) (transport.Link, error) { return &link{}, nil }
	if joined(t, a, b).Facts().ConnectNow != nil {
		t.Error("the first device cannot, and the whole can")
	}
	a.connectNow = able
	d := joined(t, a, b)
	now := d.Facts().ConnectNow
	if now(1, offered("b", "a")) != transport.Link(made) || d.Facts().Via(1) != "a" {
		t.Errorf("rank 1 is connected via %q", d.Facts().Via(1))
	}
	for what, address := range map[string][]byte{"no address": {1, 2}, "another device's": offered("b")} {
		if now(2, address) != nil || d.Facts().Via(2) != "" {
			t.Errorf("%s: there is a link via %q", what, d.Facts().Via(2))
		}
	}
	if now(3, offered("a", "b")) != nil || d.Facts().Via(3) != "" {
		t.Error("the first device makes none, and there is one")
	}
	if _, err := d.Connect(t.Context(), 3, offered("a", "b")); err != nil || d.Facts().Via(3) != "b" {
		t.Errorf("via %q: %v", d.Facts().Via(3), err)
	}
	later = true
	if now(3, offered("a", "b")) != nil || d.Facts().Via(3) != "b" {
		t.Error("the first device makes a link where the second has")
	}
}

func TestAbilities(t *testing.T) {
	a, b, c := newFake(t, "a"), newFake(t, "b"), newFake(t, "c")
	a.refused, b.refused = 3, 4
	b.card, c.card = []byte("b's"), []byte("c's")
	d := joined(t, a, b, c)
	f := d.Facts()
	if f.Memory != nil {
		t.Error("it has memory, and none of its devices has")
	}
	if f.Introducer.Introduce([]byte("me")); string(a.introduced)+string(c.introduced) != "meme" {
		t.Errorf("introduced as %q and %q", a.introduced, c.introduced)
	}
	if f.Refused() != 7 || string(f.Introducer.Card(1)) != "b's" {
		t.Errorf("refused %d, card %q", f.Refused(), f.Introducer.Card(1))
	}
	if d.Name() != "a+b+c" {
		t.Error(d.Name())
	}
}

// The memory of the first device that has any is imported by the others that can use it.
func TestMemory(t *testing.T) {
	var calls []string
	note := func(what string) func([]byte) error {
		return func([]byte) error { calls = append(calls, what); return nil }
	}
	full := errNoMemory
	alloc := func(int) ([]byte, error) { return make([]byte, 1), full }
	a, b, c := newFake(t, "a"), newFake(t, "b"), newFake(t, "c")
	b.memory = &transport.Memory{Alloc: alloc, Free: note("b frees")}
	c.memory = &transport.Memory{Alloc: alloc, Free: note("c frees"), Import: note("c imports"),
		Forget: func([]byte) { calls = append(calls, "c forgets") }}
	m := joined(t, a, b, c).Facts().Memory
	if m == nil {
		t.Fatal("a device has memory and the whole has not")
	}
	if _, err := m.Alloc(1); err != errNoMemory || calls != nil {
		t.Error(err, calls)
	}
	full = nil
	mem, err := m.Alloc(1)
	if err != nil || m.Free(mem) != nil || !slices.Equal(calls, []string{"c imports", "c forgets", "b frees"}) {
		t.Error(err, calls)
	}
}

func TestClose(t *testing.T) {
	a, b := newFake(t, "a"), newFake(t, "b")
	a.closeErr, b.closeErr = errors.New("a is stuck"), errors.New("b is stuck")
	d := joined(t, a, b)
	d.set.Close()
	err := d.Close()
	if !a.closed || !b.closed || !errors.Is(err, a.closeErr) || !errors.Is(err, b.closeErr) {
		t.Errorf("closed %v and %v: %v", a.closed, b.closed, err)
	}
	a.closeErr, b.closeErr = nil, nil
}

// Of several reports of a peer's end one is returned, and no packet of it afterwards but the ends of operations.
func TestDownOnce(t *testing.T) {
	a, b := newFake(t, "a"), newFake(t, "b")
	d := joined(t, a, b)
	down := func(peer int32) transport.Packet {
		return transport.Packet{Event: transport.Down, Peer: peer, Err: transport.ErrPeerGone}
	}
	a.arrive(packet(1, 1), down(1), packet(2, 2), down(1))
	done := transport.Packet{Event: transport.RMADone, Peer: 1, Header: wire.Header{Tag: 5}}
	b.arrive(packet(1, 3), down(1), packet(2, 4), done, down(2), packet(2, 6))
	var got []string
	pkts := make([]transport.Packet, 3)
	for range 10 {
		for _, p := range pkts[:d.Poll(pkts)] {
			got = append(got, fmt.Sprintf("%d %d %d", p.Event, p.Peer, p.Header.Tag))
		}
	}
	want := []string{}
	for _, w := range []struct {
		event transport.Event
		rest  string
	}{{transport.Arrived, "1 1"}, {transport.Down, "1 0"}, {transport.Arrived, "2 2"},
		{transport.Arrived, "2 4"}, {transport.RMADone, "1 5"}, {transport.Down, "2 0"}} {
		want = append(want, fmt.Sprintf("%d %s", w.event, w.rest))
	}
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

// What a device says of operations is for the engine also when their peer is gone: the end of a receive that the device
// matches, and a message that it has left to software, of which it waits to hear. This holds for rank 0 too.
func TestOperationsEndAfterDown(t *testing.T) {
	for peer := range int32(2) {
		a, b := newFake(t, "a"), newFake(t, "b")
		d := joined(t, a, b)
		a.arrive(transport.Packet{Event: transport.Down, Peer: peer, Err: transport.ErrPeerGone})
		want := []transport.Event{transport.Down, transport.OffloadMatched, transport.OffloadDone, transport.OffloadBack,
			transport.RMADone, transport.Unmatched}
		for _, e := range append(want[1:], transport.Arrived, transport.Room, transport.Noted, transport.Placed) {
			b.arrive(transport.Packet{Event: e, Peer: peer})
		}
		b.arrive(transport.Packet{Event: transport.OffloadBack, Peer: 1 - peer}, packet(1-peer, 0))
		want = append(want, transport.OffloadBack, transport.Arrived)
		var got []transport.Event
		pkts := make([]transport.Packet, 3)
		for range 10 {
			for _, p := range pkts[:d.Poll(pkts)] {
				got = append(got, p.Event)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("rank %d: events %d, want %d", peer, got, want)
		}
	}
}

// Arm arms every device or none.
func TestArm(t *testing.T) {
	a, b := newFake(t, "a"), newFake(t, "b")
	d := joined(t, a, b)
	b.arrive(packet(1, 0))
	if d.Arm(transport.Any, true) || a.armed {
		t.Error("b has something, and Arm does not see it or leaves a armed")
	}
	parked := make(chan struct{})
	go func() { defer close(parked); d.Park(true) }()
	select {
	case <-parked:
	case <-time.After(patience):
		t.Fatal("Arm has returned false and Park sleeps")
	}
	d.Poll(make([]transport.Packet, 4))
	if !d.Arm(transport.Any, true) || !a.armed || !b.armed {
		t.Error("not armed")
	}
	d.Disarm()
	if a.armed || b.armed {
		t.Error("not disarmed")
	}
	was := a.disarmed
	if d.Disarm(); a.disarmed != was {
		t.Error("Disarm of a rank that polls costs a call of each device")
	}
}

// A device's call of wake ends sleeps too.
func TestNotify(t *testing.T) {
	a := newFake(t, "a")
	d := joined(t, a)
	d.Arm(transport.Any, true)
	parked := make(chan struct{})
	go func() { defer close(parked); d.Park(true); d.Park(false) }()
	a.wake(true)
	a.wake(false)
	select {
	case <-parked:
	case <-time.After(patience):
		t.Fatal("the device's wake does not end Park")
	}
	if a.cleared.Load() != 2 {
		t.Errorf("cleared %d times after 2 sleeps", a.cleared.Load())
	}
}

func FuzzParse(f *testing.F) {
	f.Add(encode([]namedAddress{{"shm", []byte("@x")}, {"tcp", nil}}))
	f.Add([]byte{})
	f.Add([]byte("\x03shm\xff\xff"))
	f.Add([]byte("\x01a\x00\x00\x01a\x00\x00"))
	f.Fuzz(func(t *testing.T, b []byte) {
		list, err := parse(b)
		if err != nil {
			if !errors.Is(err, errNotOurs) || list != nil {
				t.Error(list, err)
			}
			return
		}
		if len(list) > maxDevices || !bytes.Equal(encode(list), b) {
			t.Errorf("%q is read as %q", b, list)
		}
	})
}
