package pml

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/gorun-mpi/mpi/internal/waitpolicy"
	"github.com/gorun-mpi/mpi/transport"
	"github.com/gorun-mpi/mpi/transport/looptag"
)

// newTagged makes engines over devices that match by themselves. Of busy operations a device refuses one at first.
func newTagged(t *testing.T, n, busy int, cfg Config) []*Engine {
	t.Helper()
	watchdog(t)
	f := looptag.New(busy)
	var engines []*Engine
	for rank := range n {
		c := cfg
		c.Rank, c.Size, c.Net = rank, n, f.Device(rank)
		c.Lookup = func(_ context.Context, peer int) ([]byte, error) { return engines[peer].Address(), nil }
		e, err := New(c)
		if err != nil {
			t.Fatal(err)
		}
		engines = append(engines, e)
	}
	t.Cleanup(func() {
		for _, e := range engines {
			if err := e.Close(errOver); err != nil {
				t.Error(err)
			}
			if n := e.Pending(); n != 0 {
				t.Errorf("rank %d has %d operations under way after its end", e.cfg.Rank, n)
			}
		}
	})
	return engines
}

// checkTagged checks the books of an engine whose path is taggedPath.
func checkTagged(t *testing.T, e *Engine) {
	t.Helper()
	e.lock()
	defer e.unlock()
	tp := e.path.(*taggedPath)
	if err := e.wait.check(&e.load); err != nil {
		t.Errorf("rank %d: %v", e.cfg.Rank, err)
	}
	if e.load.stalled != len(tp.refused) {
		t.Errorf("rank %d: %d links are stalled, %d queues are refused", e.cfg.Rank, e.load.stalled, len(tp.refused))
	}
	free := 0
	for cookie, r := range tp.begun {
		switch {
		case r == nil:
			free++
		case r.state != stActive || r.offload.cookie != uint64(cookie):
			t.Errorf("rank %d: an operation's request is not active, or not its own", e.cfg.Rank)
		}
	}
	if free != len(tp.free) {
		t.Errorf("rank %d: %d cookies are free, %d have no operation", e.cfg.Rank, len(tp.free), free)
	}
}

// Every way to wait, from many goroutines of each rank, over a device that matches by itself.
func TestTaggedNobodySleepsForEver(t *testing.T) {
	for _, c := range []struct {
		name string
		cfg  Config
		busy int
		cpus int
	}{
		{"spinning", Config{Wait: waitpolicy.Spin}, 0, 0},
		{"sleeping at once", Config{}, 0, 0},
		{"busy", Config{}, 3, 0},
		{"one processor", Config{Wait: waitpolicy.Spin}, 7, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.cpus != 0 {
				defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(c.cpus))
			}
			engines := newTagged(t, 3, c.busy, c.cfg)
			rounds := inShort(40, 8)
			var wg sync.WaitGroup
			for rank, e := range engines {
				for g := range 12 {
					wg.Go(func() {
						v := &talker{t: t, e: e, n: len(engines), g: g, rng: rand.New(rand.NewPCG(uint64(rank), uint64(g)))}
						for round := range rounds {
							if err := v.exchange(round); err != nil {
								t.Errorf("rank %d, goroutine %d, round %d: %v", rank, g, round, err)
								return
							}
						}
					})
				}
			}
			wg.Wait()
			for _, e := range engines {
				e.Flush()
				idle(t, e)
				checkTagged(t, e)
			}
		})
	}
}

// A caller that leads and has seen nothing go on sleeps although operations are under way, and wakes for their end. On
// one processor it may leave that to the watcher.
func TestTaggedReceiveSleeps(t *testing.T) {
	engines := newTagged(t, 2, 0, Config{})
	done := make(chan error, 1)
	go func() {
		_, _, err := engines[0].Probe(nil, 1, 1, 1, false)
		done <- err
	}()
	for sleeps := false; !sleeps; runtime.Gosched() {
		engines[0].lock()
		wait := &engines[0].wait
		sleeps = wait.leader == leaderParked || wait.followers == 1 && wait.watcher == watcherAsleep
		engines[0].unlock()
	}
	if err := engines[1].Send(nil, 1, 0, 1, []byte("news"), Standard); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if _, err := engines[0].Recv(nil, 1, 1, 1, make([]byte, 4)); err != nil {
		t.Fatal(err)
	}
}

// taggedRequests are operations of every kind between rank 0 and rank 1 that will not end by themselves.
func taggedRequests(e *Engine) []*Request {
	return []*Request{
		e.Irecv(nil, 1, 1, 7, make([]byte, 10)),
		e.Irecv(nil, 1, AnySource, AnyTag, make([]byte, 10)),
		e.Isend(nil, 1, 1, 8, make([]byte, 10), Synchronous),
		e.Isend(nil, 1, 1, 8, make([]byte, 100_000), Standard),
	}
}

// settled waits until the device has begun all that rank 0 has asked for.
func settled(t *testing.T, e *Engine) {
	t.Helper()
	for limit := time.Now().Add(hangs); ; runtime.Gosched() {
		e.lock()
		tp, all := e.path.(*taggedPath), true
		for _, r := range tp.all() {
			all = all && tp.has(r)
		}
		e.unlock()
		if all {
			return
		}
		if time.Now().After(limit) {
			t.Fatal("the device does not begin what it was asked for")
		}
	}
}

// When a peer is gone, what involves it fails, later calls fail at once, and others go on.
func TestTaggedPeerGone(t *testing.T) {
	for _, begun := range []bool{true, false} {
		engines := newTagged(t, 3, 2, Config{Wait: waitpolicy.Spin})
		rs := taggedRequests(engines[0])
		other := engines[0].Irecv(nil, 1, 2, 7, make([]byte, 10))
		if begun {
			settled(t, engines[0])
		}
		if err := engines[1].Close(errOver); err != nil {
			t.Fatal(err)
		}
		for i, r := range rs {
			if _, err := r.Wait(); !errors.Is(err, transport.ErrPeerGone) {
				t.Errorf("operation %d with a peer that is gone: %v", i, err)
			}
		}
		checkTagged(t, engines[0])
		if _, err := engines[0].Recv(nil, 1, 1, 7, nil); !errors.Is(err, transport.ErrPeerGone) {
			t.Errorf("a receive from it: %v", err)
		}
		if err := engines[0].Send(nil, 1, 1, 7, nil, Standard); !errors.Is(err, transport.ErrPeerGone) {
			t.Errorf("a send to it: %v", err)
		}
		if _, _, _, err := engines[0].Iprobe(1, 1, 7, false); !errors.Is(err, transport.ErrPeerGone) {
			t.Errorf("a probe of it: %v", err)
		}
		if err := engines[2].Send(nil, 1, 0, 7, []byte("still here"), Standard); err != nil {
			t.Error(err)
		}
		if st, err := other.Wait(); err != nil || st.Bytes != 10 {
			t.Errorf("a receive from another rank: %+v, %v", st, err)
		}
	}
}

// What is cancelled ends cancelled or as if nothing had been asked, whether the device has begun it or not.
func TestTaggedCancel(t *testing.T) {
	for _, begun := range []bool{true, false} {
		engines := newTagged(t, 2, 2, Config{Wait: waitpolicy.Spin})
		for i, r := range taggedRequests(engines[0]) {
			if begun {
				settled(t, engines[0])
			}
			for range 2 {
				if err := r.Cancel(); err != nil {
					t.Fatal(err)
				}
			}
			if st, err := r.Wait(); err != nil || !st.Cancelled || st.Bytes != 0 {
				t.Errorf("begun %v, operation %d: %+v, %v", begun, i, st, err)
			}
		}
		late := engines[0].Isend(nil, 1, 1, 9, []byte("late"), Synchronous)
		if _, err := engines[1].Recv(nil, 1, 0, 9, make([]byte, 4)); err != nil {
			t.Fatal(err)
		}
		if err := late.Cancel(); err != nil {
			t.Fatal(err)
		}
		if st, err := late.Wait(); err != nil || st.Cancelled {
			t.Errorf("cancelled when it was matched: %+v, %v", st, err)
		}
		checkTagged(t, engines[0])
	}
}

// A communicator that is freed takes its messages along: the next of the same number does not see them.
func TestTaggedDrop(t *testing.T) {
	engines := newTagged(t, 2, 3, Config{Wait: waitpolicy.Spin})
	posted := engines[0].Irecv(nil, 1, 1, 1, make([]byte, 10))
	kept := engines[0].Irecv(nil, 2, 1, 1, make([]byte, 10))
	var sends []*Request
	for i := range 10 {
		sends = append(sends, engines[1].Isend(nil, 1, 0, 5, make([]byte, i*3000), Standard))
	}
	if err := engines[1].Send(nil, 3, 0, 5, nil, Standard); err != nil { // behind them
		t.Fatal(err)
	}
	if _, err := engines[0].Recv(nil, 3, 1, 5, nil); err != nil {
		t.Fatal(err)
	}
	freed := errors.New("freed")
	engines[0].DropContext(1, freed)
	if _, err := posted.Wait(); !errors.Is(err, freed) {
		t.Errorf("a receive of the communicator: %v", err)
	}
	for i, r := range sends { // their messages are lost, which the sender cannot know
		if _, err := r.Wait(); err != nil {
			t.Errorf("message %d: %v", i, err)
		}
	}
	if _, _, found, _ := engines[0].Iprobe(1, AnySource, AnyTag, false); found {
		t.Error("a message of the communicator is still there")
	}
	if err := engines[1].Send(nil, 2, 0, 1, []byte("other"), Standard); err != nil {
		t.Fatal(err)
	}
	if st, err := kept.Wait(); err != nil || st.Bytes != 5 {
		t.Errorf("a receive of another communicator: %+v, %v", st, err)
	}
	checkTagged(t, engines[0])
}

// Messages of one sender do not overtake each other, also where the device refuses some at first.
func TestTaggedOrder(t *testing.T) {
	engines := newTagged(t, 2, 2, Config{Wait: waitpolicy.Spin})
	const n = 300
	var sends, receives []*Request
	bufs := make([][]byte, n)
	for i := range n {
		sends = append(sends, engines[1].Isend(nil, 1, 0, 3, contents(1, i, 1+i*50), Standard))
	}
	for i := range n {
		bufs[i] = make([]byte, n*50)
		receives = append(receives, engines[0].Irecv(nil, 1, AnySource, int32(3-4*(i%2)), bufs[i])) // every other: any tag
	}
	for i, r := range receives {
		st, err := r.Wait()
		if err != nil || st.Bytes != int64(1+i*50) || st.Source != 1 || st.Tag != 3 ||
			!bytes.Equal(bufs[i][:st.Bytes], contents(1, i, 1+i*50)) {
			t.Fatalf("message %d: %+v, %v", i, st, err)
		}
	}
	for _, r := range sends {
		if _, err := r.Wait(); err != nil {
			t.Error(err)
		}
	}
	checkTagged(t, engines[0])
	checkTagged(t, engines[1])
}

// staying is a device whose library takes no send back.
type staying struct {
	*looptag.Device
	facts transport.Facts
	sends map[uint64]bool // by cookie
}

func (s *staying) Facts() *transport.Facts {
	s.facts = *s.Device.Facts()
	s.facts.Tagged = s
	return &s.facts
}

func (s *staying) Limits() transport.TaggedLimits {
	l := s.Device.Limits()
	l.SendsStay = true
	return l
}

func (s *staying) Send(peer int32, m transport.Match, buf transport.Mem, sync bool, c uint64) (transport.State, error) {
	s.sends[c] = true
	return s.Device.Send(peer, m, buf, sync, c)
}

func (s *staying) Post(m transport.Match, buf transport.Mem, c uint64, waits bool) (
	transport.Probed, transport.State, error) {
	delete(s.sends, c)
	return s.Device.Post(m, buf, c, waits)
}

func (s *staying) Cancel(cookie uint64) {
	if !s.sends[cookie] {
		s.Device.Cancel(cookie)
	}
}

// A send whose context ends is over and its buffer the caller's, also where the library takes no send back: the message
// is lost or comes whole. One that is cancelled otherwise goes on.
func TestTaggedSendsStay(t *testing.T) {
	watchdog(t)
	f := looptag.New(3)
	var engines []*Engine
	for rank := range 2 {
		e, err := New(Config{Rank: rank, Size: 2, Net: &staying{Device: f.Device(rank), sends: map[uint64]bool{}},
			Lookup: func(_ context.Context, peer int) ([]byte, error) { return engines[peer].Address(), nil }})
		if err != nil {
			t.Fatal(err)
		}
		defer e.Close(errOver)
		engines = append(engines, e)
	}
	for i, size := range []int{0, 10, 100_000} {
		for both := range 2 {
			ctx, cancel := context.WithCancel(context.Background())
			out := contents(0, i, size)
			var r *Request
			if both == 1 {
				r = engines[0].Isendrecv(ctx, 1, 1, 8, out, 1, 9, nil)
			} else {
				r = engines[0].Isend(ctx, 1, 1, 8, out, Synchronous)
			}
			settled(t, engines[0])
			if err := r.Cancel(); both == 0 && err != nil {
				t.Fatal(err)
			}
			if done, _, err := r.Test(); both == 0 && (done || err != nil) {
				t.Fatalf("%d bytes: a send that cannot be cancelled has ended: %v", size, err)
			}
			cancel()
			if _, err := r.Wait(); both == 0 && !errors.Is(err, context.Canceled) {
				t.Fatalf("%d bytes: its context has ended: %v", size, err)
			}
			if n := engines[0].Pending(); n != 0 {
				t.Errorf("%d bytes: %d operations are under way", size, n)
			}
			clear(out)
			in := make([]byte, size)
			if st, err := engines[1].Recv(nil, 1, 0, 8, in); err != nil || st.Bytes != int64(size) ||
				!bytes.Equal(in, contents(0, i, size)) {
				t.Errorf("%d bytes: the message: %+v, %v", size, st, err)
			}
			checkTagged(t, engines[0])
		}
	}
}

// A message that comes when its communicator has been freed is lost when the next one is.
func TestTaggedLateMessages(t *testing.T) {
	engines := newTagged(t, 2, 3, Config{Wait: waitpolicy.Spin})
	freed := errors.New("freed")
	engines[0].DropContext(1, freed)
	late := engines[1].Isend(nil, 1, 0, 1, make([]byte, 100_000), Synchronous)
	settled(t, engines[1])
	engines[0].DropContext(2, freed)
	if err := engines[1].Send(nil, 9, 0, 1, nil, Standard); err != nil {
		t.Fatal(err)
	}
	if _, err := engines[0].Recv(nil, 9, 1, 1, nil); err != nil { // it polls
		t.Fatal(err)
	}
	if _, err := late.Wait(); err != nil {
		t.Error(err)
	}
}

// A send of a revoked communicator ends also where the library takes no send back, and the message comes after its
// receiver has dropped what there was: the receiver looks for late ones while it waits for anything.
func TestTaggedLateMessagesOfRevoked(t *testing.T) {
	watchdog(t)
	f := looptag.New(3)
	engines := make([]*Engine, 2)
	for rank := range engines {
		e, err := New(Config{Rank: rank, Size: 2, Net: &staying{Device: f.Device(rank), sends: map[uint64]bool{}},
			Lookup: func(_ context.Context, peer int) ([]byte, error) { return engines[peer].Address(), nil }})
		if err != nil {
			t.Fatal(err)
		}
		defer e.Close(errOver)
		engines[rank] = e
	}
	revoked := errors.New("revoked")
	engines[1].Revoke(4, 1, revoked)
	late := engines[0].Isend(nil, 4, 1, 8, make([]byte, 100_000), Synchronous)
	settled(t, engines[0])
	engines[0].Revoke(4, 1, revoked)
	ctx, cancel := context.WithCancel(context.Background())
	over := make(chan struct{})
	go func() {
		engines[1].Recv(ctx, 1, 0, 1, nil)
		close(over)
	}()
	if _, err := late.Wait(); err != revoked {
		t.Errorf("the send ends with %v", err)
	}
	cancel()
	<-over
}

// limited is a device whose library has few bits for tags and contexts.
type limited struct {
	*looptag.Device
	facts transport.Facts
}

func (l *limited) Facts() *transport.Facts {
	l.facts = *l.Device.Facts()
	l.facts.Tagged = l
	return &l.facts
}

func (l *limited) Limits() transport.TaggedLimits {
	return transport.TaggedLimits{Contexts: 16, Tag: 1000}
}

// A message that the library cannot match is refused, and says why.
func TestTaggedLimits(t *testing.T) {
	watchdog(t)
	d := &limited{Device: looptag.New(0).Device(0)}
	e, err := New(Config{Size: 1, Net: d, Wait: waitpolicy.Spin,
		Lookup: func(context.Context, int) ([]byte, error) { return d.Address(), nil }})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close(errOver)
	for _, c := range []struct {
		ctx uint32
		tag int32
		why error
	}{{15, 1000, nil}, {16, 0, transport.ErrUnavailable}, {0, 1001, ErrTag}} {
		r := e.Irecv(nil, c.ctx, 0, c.tag, nil)
		errSend := e.Send(nil, c.ctx, 0, c.tag, nil, Standard)
		if _, err := r.Wait(); !errors.Is(err, c.why) || !errors.Is(errSend, c.why) {
			t.Errorf("context %d, tag %d: %v", c.ctx, c.tag, errors.Join(err, errSend))
		}
	}
}

// A peer that cannot be reached fails what is sent to it, with the reason.
func TestTaggedUnreachable(t *testing.T) {
	watchdog(t)
	e, err := New(Config{Size: 2, Net: looptag.New(0).Device(0), Wait: waitpolicy.Spin,
		Lookup: func(context.Context, int) ([]byte, error) { return nil, fmt.Errorf("the launcher does not answer") }})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close(errOver)
	var peer *PeerError
	if err := e.Send(nil, 1, 1, 1, nil, Standard); !errors.As(err, &peer) || peer.Rank != 1 {
		t.Errorf("a send to a rank whose address is not known: %v", err)
	}
}

// scripted is a device that does what a test says: it has one message of 10 bytes of rank source, and only Abandon
// ends what it has begun.
type scripted struct {
	*looptag.Device
	facts  transport.Facts
	source int32
	full   bool               // Take finds no room
	at     transport.State    // what Post and Take return
	pkts   []transport.Packet // for Poll
	keeps  bool               // it begins sends, and Abandon ends nothing but notes what it is told
	given  []abandoned
}

type abandoned struct {
	cookie uint64
	over   bool
}

func newScripted(t *testing.T, size int, d *scripted) *Engine {
	t.Helper()
	watchdog(t)
	f := looptag.New(0)
	d.Device = f.Device(0)
	for rank := 1; rank < size; rank++ {
		f.Device(rank)
	}
	e, err := New(Config{Size: size, Net: d, Wait: waitpolicy.Spin,
		Lookup: func(_ context.Context, peer int) ([]byte, error) { return f.Device(peer).Address(), nil }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close(errOver) })
	return e
}

func (d *scripted) Facts() *transport.Facts {
	d.facts = *d.Device.Facts()
	d.facts.Tagged = d
	return &d.facts
}

func (d *scripted) Poll(pkts []transport.Packet) int {
	n := copy(pkts, d.pkts)
	d.pkts = d.pkts[n:]
	return n
}

func (d *scripted) message() transport.Probed {
	return transport.Probed{Message: 1, Source: d.source, Tag: 1, Bytes: 10}
}

func (d *scripted) Post(transport.Match, transport.Mem, uint64, bool) (transport.Probed, transport.State, error) {
	return d.message(), d.at, nil
}

func (d *scripted) Probe(transport.Match, bool) (transport.Probed, bool) { return d.message(), true }

func (d *scripted) Take(uint64, transport.Mem, uint64) (transport.State, error) {
	if d.full {
		return transport.Full, nil
	}
	return d.at, nil
}

func (d *scripted) Send(to int32, m transport.Match, buf transport.Mem, sync bool,
	cookie uint64) (transport.State, error) {
	if d.keeps {
		return transport.Started, nil
	}
	return d.Device.Send(to, m, buf, sync, cookie)
}

func (d *scripted) Abandon(cookie uint64, over bool) {
	if d.keeps {
		d.given = append(d.given, abandoned{cookie, over})
		return
	}
	d.pkts = append(d.pkts, transport.Packet{Event: transport.TaggedDone, Cookie: cookie, Err: transport.ErrCancelled})
}

// A message that says that it is of a rank which the world does not have is an error of the receive that gets it.
func TestTaggedStranger(t *testing.T) {
	for _, source := range []int32{2, 1 << 16, -1} {
		e := newScripted(t, 2, &scripted{source: source, at: transport.Done})
		if st, err := e.Recv(nil, 1, AnySource, AnyTag, make([]byte, 10)); err == nil || st.Bytes != 0 {
			t.Errorf("a message of rank %d of 2 is received: %+v", source, st)
		}
	}
}

// The receive of a message that a probe has taken ends when the sender does, whether the device had room for it before.
func TestTaggedTakenOfTheDead(t *testing.T) {
	for _, full := range []bool{false, true} {
		d := &scripted{source: 1, full: full, at: transport.Started}
		e := newScripted(t, 3, d)
		m, _, err := e.Probe(nil, 1, 1, 1, true)
		if err != nil {
			t.Fatal(err)
		}
		r, err := e.Imrecv(nil, m, make([]byte, 10))
		if err != nil {
			t.Fatal(err)
		}
		e.lock()
		d.pkts = append(d.pkts, transport.Packet{Event: transport.Down, Peer: 1, Err: transport.ErrPeerGone})
		e.unlock()
		for limit := time.Now().Add(hangs / 2); ; runtime.Gosched() {
			done, _, err := r.Test()
			if done {
				if !errors.Is(err, transport.ErrPeerGone) {
					t.Errorf("no room at first %v: %v", full, err)
				}
				break
			}
			if time.Now().After(limit) {
				t.Fatalf("no room at first %v: it does not end", full)
			}
			if full {
				e.lock()
				d.full = false
				d.pkts = append(d.pkts, transport.Packet{Event: transport.Room})
				e.unlock()
			}
		}
	}
}

// A send whose peer has failed ends when the device says so. When the job is over the device is told, and what it then
// ends well has failed all the same: a sender whose own call had ended may have written to the message.
func TestTaggedGivenUp(t *testing.T) {
	d := &scripted{keeps: true, at: transport.Started}
	e := newScripted(t, 3, d)
	send := e.Isend(nil, 1, 1, 1, make([]byte, 10), Standard)
	settled(t, e)
	recv := e.Irecv(nil, 1, 2, 1, make([]byte, 10))
	poll := func(pkts ...transport.Packet) {
		e.lock()
		d.pkts = append(d.pkts, pkts...)
		e.progress()
		e.unlock()
	}
	poll(transport.Packet{Event: transport.Down, Peer: 1, Err: transport.ErrPeerGone})
	if done, _, err := send.Test(); done || err != nil || len(d.given) != 1 || d.given[0].over {
		t.Fatalf("the send is done %v: %v; given up: %v", done, err, d.given)
	}
	over := errors.New("the job is over")
	e.Fail(over)
	if len(d.given) != 3 || !d.given[1].over || !d.given[2].over || d.given[0].cookie == d.given[2].cookie {
		t.Fatalf("given up: %v", d.given)
	}
	poll(transport.Packet{Event: transport.TaggedDone, Cookie: d.given[1].cookie, Peer: 1},
		transport.Packet{Event: transport.TaggedDone, Cookie: d.given[2].cookie, Peer: 2})
	if _, err := send.Wait(); !errors.Is(err, transport.ErrPeerGone) {
		t.Errorf("the send: %v", err)
	}
	if st, err := recv.Wait(); !errors.Is(err, over) || st.Bytes != 0 {
		t.Errorf("the receive: %+v, %v", st, err)
	}
}

// holding is a device that holds sends whose callers do not wait, until Poll.
type holding struct {
	*looptag.Device
	facts transport.Facts
	held  []func()
	wake  func(thread bool)
	left  chan int // how many each Poll lets leave
	lazy  bool     // Arm wakes nobody
}

func (h *holding) Facts() *transport.Facts {
	h.facts = *h.Device.Facts()
	h.facts.Tagged = h
	beneath := h.facts.Wake[0].Notify
	h.facts.Wake = []transport.Wake{{FD: -1, ThreadFD: -1, Notify: func(wake func(thread bool)) {
		h.wake = wake
		beneath(wake)
	}}}
	return &h.facts
}

// Arm has a rank that holds something be woken. It reports whether the rank is armed.
func (h *holding) Arm(level transport.Level) bool {
	if len(h.held) > 0 && !h.lazy {
		go h.wake(false)
	}
	return h.Device.Arm(level)
}

func (h *holding) TrySend(peer int32, m transport.Match, buf transport.Mem, now bool) (sent, held bool) {
	if now {
		h.leave()
		return h.Device.TrySend(peer, m, buf, true)
	}
	kept := transport.HostMem(bytes.Clone(buf.Bytes()))
	h.held = append(h.held, func() { h.Device.TrySend(peer, m, kept, true) })
	return true, true
}

func (h *holding) leave() {
	n := len(h.held)
	for _, send := range h.held {
		send()
	}
	if h.held = nil; n > 0 {
		h.left <- n
	}
}

func (h *holding) Poll(pkts []transport.Packet) int {
	h.leave()
	return h.Device.Poll(pkts)
}

// Sends that the device holds leave though their rank makes no call any more; Flush has them leave; sends whose callers
// wait are not held.
func TestTaggedHeldSends(t *testing.T) {
	watchdog(t)
	f := looptag.New(0)
	d := &holding{Device: f.Device(0), left: make(chan int, 10)}
	peer := f.Device(1)
	e, err := New(Config{Size: 2, Net: d,
		Lookup: func(context.Context, int) ([]byte, error) { return peer.Address(), nil }})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close(errOver)
	begin := func() {
		t.Helper()
		for range 3 {
			if _, err := e.Isend(nil, 1, 1, 1, []byte{1}, Standard).Wait(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := e.Send(nil, 1, 1, 1, []byte{1}, Standard); err != nil { // the first contact
		t.Fatal(err)
	}
	begin()
	for n := 3; n > 0; n -= <-d.left { // some may have left meanwhile
	}
	begin()
	e.Flush()
	for n := 3; n > 0; n -= <-d.left {
	}
	if err := e.Send(nil, 1, 1, 1, []byte{1}, Standard); err != nil || len(d.left) > 0 {
		t.Errorf("%d are held: %v", len(d.left), err)
	}
	checkTagged(t, e)
	e.lock()
	defer e.unlock()
	if e.load.stalled != 0 {
		t.Errorf("%d links are stalled", e.load.stalled)
	}
}

// A call that starts a send which the device holds does not let it leave: the next ones are held with it.
func TestTaggedHeldTogether(t *testing.T) {
	watchdog(t)
	f := looptag.New(0)
	d := &holding{Device: f.Device(0), left: make(chan int, 10), lazy: true}
	peer := f.Device(1)
	e, err := New(Config{Size: 2, Net: d,
		Lookup: func(context.Context, int) ([]byte, error) { return peer.Address(), nil }})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close(errOver)
	if err := e.Send(nil, 1, 1, 1, []byte{1}, Standard); err != nil { // the first contact
		t.Fatal(err)
	}
	const tries = 20 // the watcher may look between two calls, and then some leave before the others
	for i := range tries {
		for range 5 {
			if _, err := e.Isend(nil, 1, 1, 1, []byte{1}, Standard).Wait(); err != nil {
				t.Fatal(err)
			}
		}
		e.Flush()
		var parts []int
		for sum := 0; sum < 5; sum += parts[len(parts)-1] {
			parts = append(parts, <-d.left)
		}
		if len(parts) == 1 {
			return
		}
		t.Logf("try %d: they leave in parts of %v", i, parts)
	}
	t.Errorf("they never leave together")
}

// leaving is a device that gives up what is abandoned, and lets go of it when the test says so.
type leaving struct {
	*scripted
}

func (d *leaving) Facts() *transport.Facts {
	d.facts = *d.Device.Facts()
	d.facts.Tagged = d
	return &d.facts
}

func (d *leaving) Post(transport.Match, transport.Mem, uint64, bool) (transport.Probed, transport.State, error) {
	return transport.Probed{}, transport.Started, nil
}

func (d *leaving) Probe(transport.Match, bool) (transport.Probed, bool) {
	return transport.Probed{}, false
}

func (d *leaving) Abandon(cookie uint64, over bool) {
	d.given = append(d.given, abandoned{cookie, over})
	d.pkts = append(d.pkts, transport.Packet{Event: transport.TaggedGivenUp, Cookie: cookie,
		Err: transport.ErrCancelled})
}

// The cookie of an operation that the device has given up is no other's before the device has let go of it.
func TestTaggedCookieOfGivenUp(t *testing.T) {
	watchdog(t)
	f := looptag.New(0)
	d := &leaving{&scripted{Device: f.Device(0)}}
	e, err := New(Config{Size: 2, Net: d, Wait: waitpolicy.Spin,
		Lookup: func(context.Context, int) ([]byte, error) { return f.Device(1).Address(), nil }})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close(errOver)
	freed := errors.New("freed")
	given := e.Irecv(nil, 1, 1, 1, make([]byte, 10))
	e.DropContext(1, freed)
	if _, err := given.Wait(); !errors.Is(err, freed) {
		t.Errorf("the receive that is given up: %v", err)
	}
	cookies := func(n int) map[uint64]bool { // of n receives
		for range n {
			e.Irecv(nil, 2, 1, 1, make([]byte, 10))
		}
		all := map[uint64]bool{}
		e.lock()
		defer e.unlock()
		for cookie, r := range e.path.(*taggedPath).begun {
			if r != nil {
				all[uint64(cookie)] = true
			}
		}
		return all
	}
	if all := cookies(3); len(all) != 3 || all[d.given[0].cookie] {
		t.Errorf("cookie %d is given up; others have %v", d.given[0].cookie, all)
	}
	e.lock()
	d.pkts = append(d.pkts, transport.Packet{Event: transport.TaggedDone, Cookie: d.given[0].cookie})
	e.progress()
	e.unlock()
	if all := cookies(1); len(all) != 4 || !all[d.given[0].cookie] {
		t.Errorf("cookie %d is free; others have %v", d.given[0].cookie, all)
	}
}

// What takes the messages of a context that is dropped has no buffer, though the request that it uses had one before.
func TestTaggedDropTakesNothing(t *testing.T) {
	engines := newTagged(t, 2, 0, Config{})
	a, b := engines[0], engines[1]
	const size = 100
	for range 3 {
		go a.Send(nil, 1, 1, 1, make([]byte, size), Standard)
		if _, err := b.Recv(nil, 1, 0, 1, make([]byte, size)); err != nil {
			t.Fatal(err)
		}
	}
	lost := a.Isend(nil, 8, 1, 1, make([]byte, 10*size), Synchronous)
	if _, _, err := b.Probe(nil, 8, 0, 1, false); err != nil {
		t.Fatal(err)
	}
	b.DropContext(8, errOver)
	if _, err := lost.Wait(); err != nil {
		t.Error(err)
	}
	checkTagged(t, b)
}

// A message that a probe has taken before the engine fails can be received afterwards: the request ends with the engine
// at the latest, also where the device has no room for it.
func TestTakenBeforeTheEnd(t *testing.T) {
	engines := newTagged(t, 2, 2, Config{})
	var taken []*Message
	for range 10 {
		if _, err := engines[0].Isend(nil, 1, 1, 5, []byte{1}, Standard).Wait(); err != nil {
			t.Fatal(err)
		}
		m, _, err := engines[1].Probe(nil, 1, 0, 5, true)
		if err != nil {
			t.Fatal(err)
		}
		taken = append(taken, m)
	}
	e := engines[1]
	e.Fail(errOver)
	var all []*Request
	e.lock()
	for _, m := range taken { // as Imrecv does, while a caller leads that has not looked for room yet
		r := e.requests.handle()
		r.prepareRecv(nil, m.ctx, 0, 5, make([]byte, 1))
		r.state = stActive
		e.load.outstanding++
		e.path.take(m.found, r)
		all = append(all, r)
	}
	e.unlock()
	if err := e.Close(errOver); err != nil {
		t.Error(err)
	}
	for i, r := range all {
		if r.state != stDone {
			t.Errorf("receive %d waits for ever", i)
		}
	}
}

// A message for the server shows itself nowhere: a rank that sleeps, and that the device has look, starts the server
// after one look, whoever waits.
func TestTaggedServerOfARankThatGlances(t *testing.T) {
	for _, how := range []string{"a call waits", "Done waits", "the rank computes"} {
		f := looptag.New(0)
		engines := make([]*Engine, 2)
		for rank := range engines {
			e, err := New(Config{Rank: rank, Size: 2, Net: f.Device(rank), Wait: waitpolicy.Spin,
				Lookup: func(_ context.Context, peer int) ([]byte, error) { return engines[peer].Address(), nil }})
			if err != nil {
				t.Fatal(err)
			}
			e.pace.glances = true
			engines[rank] = e
		}
		waits := engines[1]
		started := make(chan bool, 1)
		waits.StartServer(3, 5, 10, func() { started <- true })
		ctx, cancel := context.WithCancel(context.Background())
		r := waits.Irecv(nil, 1, 0, 1, nil)
		done := make(chan struct{})
		go func() {
			defer close(done)
			switch how {
			case "a call waits":
				waits.Recv(ctx, 1, 0, 2, nil)
			case "Done waits":
				select {
				case <-r.Done():
				case <-ctx.Done():
				}
			}
		}()
		time.Sleep(50 * time.Millisecond) // it sleeps
		engines[0].SendToServer(3, 1, 5, []byte{1})
		looks, limit := 0, time.Now().Add(10*time.Second)
		for is := false; !is; looks++ {
			if time.Now().After(limit) {
				t.Errorf("%s: the server has not been started after %d looks", how, looks)
				break
			}
			waits.sleep.Interrupt()
			select {
			case is = <-started:
			case <-time.After(20 * time.Millisecond):
			}
		}
		if looks > 100 {
			t.Errorf("%s: the server is started after %d looks", how, looks)
		}
		cancel()
		<-done
		for _, e := range engines {
			e.Close(errOver)
		}
	}
}
