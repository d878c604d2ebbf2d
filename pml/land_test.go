package pml

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/gorun-mpi/mpi/internal/waitpolicy"
	"github.com/gorun-mpi/mpi/internal/wire"
	"github.com/gorun-mpi/mpi/transport"
)

// Receives that poll before they are posted, among posted ones, get what they would get if they had been posted; MPI
// 4.1 §3.5. The model is two lists and a linear scan, and sees what arrives in the order in which the engine does.
func TestLandingOrder(t *testing.T) {
	seeds := uint64(400)
	if testing.Short() {
		seeds = 60
	}
	landed, started := uint64(0), uint64(0)
	for seed := range seeds {
		m := &landingModel{t: t, rng: rand.New(rand.NewPCG(seed, 31)), seed: seed}
		landed += m.run()
		started += m.started
	}
	if landed < seeds || started < seeds/5 {
		t.Errorf("%d Recv and %d Irecv of %d runs have got a message before they were posted: too few for a test",
			landed,
			started, seeds)
	}
}

type landingModel struct {
	t    *testing.T
	rng  *rand.Rand
	seed uint64
	net  *testNet

	receives           []*landingReceive
	sends              []*Request
	posted, unexpected []modelEntry
	envelopes          []modelEntry // of sends
	started            uint64       // receives that have not waited, and got a message before they were posted
}

type landingReceive struct {
	modelEntry
	r   *Request // nil: st
	st  Status
	buf []byte
	got int // message, or -1
}

var landingSizes = []int{8, 8, 8, 8, 8, 8, 64, 65, 200, 256, 257, 3000}

func (m *landingModel) run() (landed uint64) {
	m.net = newTestNet(netOptions{ranks: 3, eagerMax: 256, fragMax: 512, unexpectedMax: 1 << 20})
	defer m.net.close()
	m.net.linkAll()
	for range 250 {
		switch m.rng.IntN(8) {
		case 0, 1, 2:
			m.send()
		case 3:
			m.receive(false)
		case 4, 5:
			m.arrive(m.rng.IntN(4))
			if !m.receive(true) {
				landed++
			}
		case 6:
			m.arrive(m.rng.IntN(4))
			m.hear()
			m.net.work(0)
		case 7:
			m.drain()
		}
		m.net.check(m.t)
	}
	m.drain()
	m.checkResults()
	return landed
}

// drain lets all that is on the wires come, and what is fetched come to its end.
func (m *landingModel) drain() {
	m.arrive(math.MaxInt)
	m.hear()
	for range 10 {
		for rank := range m.net.engines {
			m.net.deliver(rank, math.MaxInt)
		}
	}
}

func (m *landingModel) envelope(any bool) modelEntry {
	v := modelEntry{4, int32(1 + m.rng.IntN(2)), int32(m.rng.IntN(6)), 0}
	if any && m.rng.IntN(4) == 0 {
		v.source = AnySource
	}
	if any && m.rng.IntN(4) == 0 {
		v.tag = AnyTag
	}
	return v
}

func (m *landingModel) send() {
	v := m.envelope(false)
	v.id = len(m.sends)
	buf := make([]byte, landingSizes[m.rng.IntN(len(landingSizes))])
	binary.LittleEndian.PutUint64(buf, uint64(v.id)+1)
	m.sends = append(m.sends, m.net.engines[v.source].Isend(nil, v.ctx, 0, v.tag, buf, Mode(m.rng.IntN(10)/9)))
	m.envelopes = append(m.envelopes, v)
}

// arrive has messages come to rank 0's device, which has not been polled.
func (m *landingModel) arrive(count int) { m.net.arrive(0, count) }

// hear is called when the engine is about to poll all of that.
func (m *landingModel) hear() {
	for _, pkt := range m.net.devices[0].inbox {
		for i := range messagesIn(&pkt) {
			m.match(int(pkt.Peer), int(pkt.Cookie)+i)
		}
	}
}

// match is called when message number nth of a rank has arrived.
func (m *landingModel) match(from, nth int) {
	i := slices.IndexFunc(m.envelopes, func(v modelEntry) bool {
		if int(v.source) == from {
			nth--
		}
		return int(v.source) == from && nth == 0
	})
	v := m.envelopes[i]
	for k, r := range m.posted {
		if r.takes(v) {
			m.receives[r.id].got = v.id
			m.posted = slices.Delete(m.posted, k, k+1)
			return
		}
	}
	m.unexpected = append(m.unexpected, v)
}

// receive begins one, and reports whether it has been posted.
func (m *landingModel) receive(lands bool) (posted bool) {
	v := &landingReceive{modelEntry: m.envelope(true), got: -1, buf: make([]byte, []int{8, 64, 3000, 3000}[m.rng.IntN(4)])}
	if inbox := m.net.devices[0].inbox; lands && len(inbox) > 0 && m.rng.IntN(3) > 0 { // for what is there
		if h := &inbox[m.rng.IntN(len(inbox))]; isMessage(h.Header.Kind) {
			v.source, v.tag = h.Peer, h.Header.Tag
		}
	}
	v.id = len(m.receives)
	m.receives = append(m.receives, v)
	k := slices.IndexFunc(m.unexpected, v.takes)
	if k >= 0 {
		v.got = m.unexpected[k].id
		m.unexpected = slices.Delete(m.unexpected, k, k+1)
	} else {
		m.posted = append(m.posted, v.modelEntry)
	}
	e := m.net.engines[0]
	if !lands {
		v.r = e.Irecv(nil, v.ctx, int(v.source), v.tag, v.buf)
		return true
	}
	m.hear()
	if m.rng.IntN(2) == 0 {
		completed := e.load.completed
		v.r = e.Irecv(nil, v.ctx, int(v.source), v.tag, v.buf)
		if v.r.state == stDone && e.load.completed == completed { // the end of a posted one would have counted
			m.started++
		}
		m.net.work(0)
		return true
	}
	v.r, v.st = m.net.recv(0, v.ctx, int(v.source), v.tag, v.buf)
	return v.r != nil
}

func (m *landingModel) checkResults() {
	for i, v := range m.receives {
		done, st, err := true, v.st, error(nil)
		if v.r != nil {
			done, st, err = v.r.Test()
		}
		if done != (v.got >= 0) {
			m.t.Fatalf("seed %d, receive %d %+v: done %v, the model says message %d", m.seed, i, v.modelEntry, done, v.got)
		}
		if !done {
			continue
		}
		if err != nil && !errors.Is(err, ErrTruncate) {
			m.t.Fatalf("seed %d, receive %d: %v", m.seed, i, err)
		}
		want := m.envelopes[v.got]
		got := int(binary.LittleEndian.Uint64(v.buf)) - 1
		if got != v.got || st.Source != want.source || st.Tag != want.tag {
			m.t.Fatalf("seed %d, receive %d %+v got message %d (%+v), the model says %d", m.seed, i, v.modelEntry, got, st, v.got)
		}
	}
	if left := m.net.engines[0].Stats(); left.Posted != len(m.posted) || left.Unexpected != len(m.unexpected) {
		m.t.Fatalf("seed %d: %d posted and %d unexpected are left, the model says %d and %d",
			m.seed, left.Posted, left.Unexpected, len(m.posted), len(m.unexpected))
	}
}

// What else one poll of such a receive may bring: then it is as if it had been posted.
func TestLandingMeets(t *testing.T) {
	eager := func(from, tag, n int) transport.Packet {
		return transport.Packet{Peer: int32(from), Header: wire.Header{Kind: wire.Eager, Ctx: 4, Tag: int32(tag)},
			Payload: contents(from, tag, n)}
	}
	down := transport.Packet{Event: transport.Down, Peer: 1, Err: transport.ErrPeerGone}
	broken := transport.Packet{Peer: 1, Header: wire.Header{Kind: wire.Credit, Len: math.MaxUint64}}
	var flood []transport.Packet
	for range 20 {
		flood = append(flood, eager(1, 9, 8))
	}
	for _, c := range []struct {
		name   string
		source int
		inbox  []transport.Packet
		want   string // part of the error; "" means none
		open   bool   // it waits on
	}{
		{"its message", 1, []transport.Packet{eager(1, 7, 8)}, "", false},
		{"its message, then the end of its sender", 1, []transport.Packet{eager(1, 7, 8), down}, "", false},
		{"the end of its source", 1, []transport.Packet{eager(1, 9, 8), down}, "rank 1", false},
		{"the end of a rank, from any", AnySource, []transport.Packet{down, eager(2, 7, 8)}, "rank 1", false},
		{"the end of another rank", 2, []transport.Packet{down}, "", true},
		{"the end of another rank, then its message", 2, []transport.Packet{down, eager(2, 7, 8)}, "", false},
		{"a breach of the protocol", 1, []transport.Packet{broken, eager(1, 7, 8)}, "rank 1", false},
		{"more than its source was allowed", 1, flood, "rank 1", false},
		{"more than another was allowed, from any", AnySource, flood, "rank 1", false},
		{"more than another was allowed, then its message, from any", AnySource, append(flood[:17:17], eager(2, 7, 8)), "rank 1", false},
		{"a message that is too long", 1, []transport.Packet{eager(1, 7, 20)}, ErrTruncate.Error(), false},
		{"a message that is too long, then one that fits", 1, []transport.Packet{eager(1, 7, 20), eager(1, 7, 8)},
			ErrTruncate.Error(), false},
		{"another communicator's", 1, []transport.Packet{{Peer: 1, Header: wire.Header{Kind: wire.Eager, Ctx: 5, Tag: 7}}}, "", true},
	} {
		for _, spin := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, spin %v", c.name, spin), func(t *testing.T) {
				n := newTestNet(netOptions{ranks: 3, eagerMax: 256, fragMax: 512, unexpectedMax: 1})
				n.hostile = true
				defer n.close()
				n.linkAll()
				e := n.engines[0]
				if spin {
					e.pace = newPace(waitpolicy.Spin)
				}
				n.devices[0].inbox = slices.Clone(c.inbox)
				buf := make([]byte, 8)
				r, st := n.recv(0, 4, c.source, 7, buf)
				done, err := true, error(nil)
				if r != nil {
					done, st, err = r.Test()
				}
				switch {
				case done == c.open:
					t.Fatalf("done %v, %v", done, err)
				case c.want == "" && err != nil, c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want) && !errors.Is(err, ErrTruncate)):
					t.Fatalf("%v, want %q", err, c.want)
				case done && st.Bytes > 0 && !slices.Equal(buf, contents(int(st.Source), 7, 8)):
					t.Errorf("%v has landed", buf)
				}
				if left := e.Pending(); left != 0 && !c.open {
					t.Errorf("%d operations are left", left)
				}
				n.check(t)
			})
		}
	}
}

// A rank that keeps a message back for want of credit is served for a receive that polls as for a posted one.
func TestLandingServesCredit(t *testing.T) {
	n := newTestNet(netOptions{ranks: 2, eagerMax: 256, fragMax: 512, unexpectedMax: 1})
	defer n.close()
	n.linkAll()
	for i := range 100 {
		n.engines[1].Isend(nil, 4, 0, int32(i), []byte{byte(i)}, Standard)
	}
	n.arrive(0, math.MaxInt)
	buf := make([]byte, 1)
	r, _ := n.recv(0, 4, 1, 99, buf)
	for range 100 {
		n.deliver(1, math.MaxInt)
		n.deliver(0, math.MaxInt)
		n.check(t)
	}
	if done, _, err := r.Test(); !done || err != nil || buf[0] != 99 {
		t.Errorf("done %v, %v, %d", done, err, buf[0])
	}
}

// Receives that land without end, and messages that progress takes, leave the device its Polls.
func TestLandingPolls(t *testing.T) {
	n := newTestNet(netOptions{ranks: 2, eagerMax: 256, fragMax: 512, unexpectedMax: 1 << 20})
	defer n.close()
	n.linkAll()
	e, d := n.engines[0], n.devices[0]
	for range 5 {
		for before, i := d.polls, 0; d.polls == before; i++ {
			if i > 2*maxUnpolled {
				t.Fatalf("%d messages without a Poll", i)
			}
			n.engines[1].Isend(nil, 4, 0, 7, make([]byte, 8), Standard)
			n.arrive(0, math.MaxInt)
			if _, err := e.Recv(nil, 4, 1, 7, make([]byte, 8)); err != nil {
				t.Fatal(err)
			}
			n.deliver(1, math.MaxInt)
		}
	}
}

// A receive that fails says nothing of the message that its request has received before.
func TestFailedReceiveHasNoStatus(t *testing.T) {
	n := newTestNet(netOptions{ranks: 2, eagerMax: 256, fragMax: 512, unexpectedMax: 1 << 20})
	defer n.close()
	n.linkAll()
	e, buf := n.engines[0], make([]byte, 8)
	persistent := e.PrepareRecv(nil, 4, 1, 7, buf)
	start := map[string]func() *Request{
		"Irecv": func() *Request { return e.Irecv(nil, 4, 1, 7, buf) },
		"RecvInit": func() *Request {
			if err := persistent.Start(); err != nil {
				t.Fatal(err)
			}
			return persistent
		},
	}
	for _, begin := range start {
		for range 2 * requestQuarantine {
			n.engines[1].Isend(nil, 4, 0, 7, make([]byte, 8), Standard)
			r := begin()
			n.deliver(0, math.MaxInt)
			if st, err := r.Wait(); err != nil || st.Bytes != 8 {
				t.Fatalf("%+v, %v", st, err)
			}
			n.deliver(1, math.MaxInt)
		}
	}
	var rs []*Request
	for _, begin := range start {
		rs = append(rs, begin())
	}
	n.engines[0].DropContext(4, errOver)
	for _, r := range rs {
		if st, err := r.Wait(); err == nil || st != (Status{}) {
			t.Errorf("%+v, %v", st, err)
		}
	}
}
