package pml

import (
	"bytes"
	"errors"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/gorun-mpi/mpi/eager"
	"github.com/gorun-mpi/mpi/internal/wire"
	"github.com/gorun-mpi/mpi/rendezvous"
	"github.com/gorun-mpi/mpi/transport"
)

// fuzzInput gives small numbers from a fuzzer's bytes; when they are used up, zeros.
type fuzzInput struct{ data []byte }

func (d *fuzzInput) more() bool { return len(d.data) > 0 }

func (d *fuzzInput) upTo(n int) int {
	if len(d.data) == 0 {
		return 0
	}
	b := d.data[0]
	d.data = d.data[1:]
	return int(b) % n
}

func randomBytes(seed uint64, n int) []byte {
	rng := rand.New(rand.NewPCG(seed, 9))
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(rng.Uint32())
	}
	return b
}

// FuzzSchedule lets three correct engines send, receive, probe and cancel while the network delivers when it likes, is
// full, refuses to register memory, fails READs, and lies about who polls. Between any two steps every byte of credit is
// accounted for and every engine's books are right; in the end no message is lost, doubled, overtaken or changed.
func FuzzSchedule(f *testing.F) {
	for seed := uint64(0); seed < 150; seed += inShort[uint64](1, 5) { // some of all lengths
		f.Add(randomBytes(seed, 200+int(seed)*5))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		p := &play{t: t, fuzzInput: fuzzInput{data[:min(len(data), 4000)]}, messages: map[*Message]int{}}
		p.run()
	})
}

// play is one run of FuzzSchedule.
type play struct {
	fuzzInput
	t        *testing.T
	net      *testNet
	sends    []*message
	receives []*reception
	messages map[*Message]int // taken by a matched probe: at which rank
	matched  []*Message
	nics     bool // ranks have devices that match tags
}

type message struct {
	r        *Request
	from, to int
	tag      int32
	contents []byte

	received, cancelled bool
}

type reception struct {
	r          *Request
	at, source int
	tag        int32
	buf        []byte
	probed     bool
	got        *message
	landed     Status // if r is nil
}

const playRanks = 3

func (p *play) run() {
	o := netOptions{ranks: playRanks, eagerMax: 256, eagerSure: p.upTo(2) * 50, fragMax: 512, unexpectedMax: 1,
		noGet: p.upTo(4) == 0, put: p.upTo(2) == 0, packets: p.upTo(3) == 0}
	if p.nics {
		o.nic = p.nic
	}
	p.net = newTestNet(o)
	defer p.net.close()
	for p.more() && !p.t.Failed() {
		p.step()
		p.net.awaitConnects()
		p.net.check(p.t)
	}
	p.finish()
	p.judge()
}

func (p *play) step() {
	n, rank := p.net, p.upTo(playRanks)
	e := n.engines[rank]
	switch p.upTo(20) {
	case 0, 1, 2, 3:
		p.send(rank)
	case 4, 5, 6:
		p.post(rank)
	case 7, 8, 9:
		n.deliver(rank, 1+p.upTo(4))
	case 10:
		n.work(rank)
	case 11:
		e.lock()
		e.path.stalled()
		if p.upTo(2) == 0 { // as if a caller waited
			e.links.letSendersGoOn(nil)
		}
		e.exitCall()
		e.unlock()
	case 12:
		n.polls[rank] = p.upTo(2) == 0
		n.waits[rank] = p.upTo(2) == 0
	case 13:
		if n.reads[rank] = p.upTo(5); n.reads[rank] == 4 {
			delete(n.reads, rank)
		}
	case 14:
		w := [2]int{rank, p.upTo(playRanks)}
		if n.rooms[w] = p.upTo(4); n.rooms[w] == 3 {
			delete(n.rooms, w)
		}
	case 15:
		p.cancel()
	case 16:
		p.probe(rank)
	case 17:
		n.refused = p.upTo(4) == 0
	case 18:
		n.prefer(rank, rendezvous.Schemes[p.upTo(3)])
	case 19:
		if n.writes[rank] = p.upTo(5); n.writes[rank] == 4 {
			delete(n.writes, rank)
		}
	}
}

var playSizes = [...]int{0, 1, 10, 64, 65, 256, 257, 600, 3000, 9000, 20_000}

func (p *play) send(from int) {
	m := &message{from: from, to: p.upTo(playRanks), tag: int32(p.upTo(3))}
	m.contents = contents(len(p.sends), int(m.tag), playSizes[p.upTo(len(playSizes))])
	mode := Mode(p.upTo(4) / 3)
	if p.upTo(2) == 0 {
		m.r = p.net.engines[from].isendBlocked(m.to, m.tag, m.contents, mode)
	} else {
		m.r = p.net.engines[from].Isend(nil, scriptContext, m.to, m.tag, m.contents, mode)
	}
	p.sends = append(p.sends, m)
}

// isendBlocked is sendSlow up to where that waits.
func (e *Engine) isendBlocked(dest int, tag int32, buf []byte, mode Mode) *Request {
	e.lock()
	defer e.unlock()
	r := e.requests.handle()
	r.prepareSend(nil, scriptContext, dest, tag, buf, mode)
	r.vain = isBlocked
	e.start(r)
	e.exitCall()
	return r
}

func (p *play) post(at int) *reception {
	v := &reception{at: at, source: p.upTo(playRanks+1) - 1, tag: int32(p.upTo(4) - 1), buf: make([]byte, 20_000)}
	if p.upTo(4) == 3 {
		v.buf = v.buf[:300]
	}
	if p.upTo(2) == 0 {
		v.r = p.net.engines[at].Irecv(nil, scriptContext, v.source, v.tag, v.buf)
	} else {
		p.net.arrive(at, p.upTo(4))
		v.r, v.landed = p.net.recv(at, scriptContext, v.source, v.tag, v.buf)
	}
	p.receives = append(p.receives, v)
	return v
}

func (p *play) cancel() {
	var r *Request
	if k := p.upTo(256); k%2 == 0 && len(p.sends) > 0 {
		r = p.sends[k/2%len(p.sends)].r
	} else if len(p.receives) > 0 {
		r = p.receives[k/2%len(p.receives)].r
	}
	if r != nil {
		if err := r.Cancel(); err != nil {
			p.t.Error(err)
		}
	}
}

// probe takes a message off the queue, or receives one that was taken earlier.
func (p *play) probe(rank int) {
	if len(p.matched) > 0 && p.upTo(2) == 0 {
		p.mrecv()
		return
	}
	m, _, found, err := p.net.engines[rank].Iprobe(scriptContext, p.upTo(playRanks+1)-1, int32(p.upTo(4)-1), true)
	if err != nil {
		p.t.Error(err)
	}
	if found {
		p.messages[m] = rank
		p.matched = append(p.matched, m)
	}
}

func (p *play) mrecv() {
	m := p.matched[0]
	p.matched = p.matched[1:]
	v := &reception{at: p.messages[m], probed: true, buf: make([]byte, 20_000)}
	var err error
	if v.r, err = p.net.engines[v.at].Imrecv(nil, m, v.buf); err != nil {
		p.t.Error(err)
	}
	p.receives = append(p.receives, v)
}

// finish lets everything come to its end: no more faults, a receive for every message, no receive without one.
func (p *play) finish() {
	n := p.net
	clear(n.reads)
	clear(n.writes)
	clear(n.rooms)
	n.refused = false
	for len(p.matched) > 0 {
		p.mrecv()
	}
	p.data = nil // from here on receives take anything
	for turns := 0; p.pending(); turns++ {
		if turns > 10_000 {
			p.t.Fatal("it does not come to an end")
		}
		for rank, e := range n.engines {
			n.deliver(rank, math.MaxInt)
			n.work(rank)
			for st := e.Stats(); st.Unexpected > 0; st.Unexpected-- {
				p.post(rank)
			}
			n.awaitConnects()
			if quiet := n.empty(); quiet && e.Stats().Posted > 0 {
				for _, v := range p.receives {
					if v.at == rank && v.r != nil {
						v.r.Cancel()
					}
				}
			}
		}
		n.check(p.t)
		if p.t.Failed() {
			return
		}
	}
	if len(n.regions) != 0 {
		p.t.Errorf("%d buffers are still registered", len(n.regions))
	}
}

func (p *play) pending() bool {
	for _, e := range p.net.engines {
		if e.Pending() > 0 || e.Stats().Unexpected > 0 {
			return true
		}
	}
	return !p.net.empty()
}

func (p *play) judge() {
	for i, m := range p.sends {
		done, st, err := m.r.Test()
		if m.cancelled = st.Cancelled; !done || err != nil {
			p.t.Fatalf("message %d: done %v, %v", i, done, err)
		}
	}
	for i, v := range p.receives {
		st, err := v.landed, error(nil)
		if v.r != nil {
			_, st, err = v.r.Test()
		}
		if st.Cancelled {
			continue
		}
		if err != nil && !errors.Is(err, ErrTruncate) {
			p.t.Fatalf("receive %d: %v", i, err)
		}
		v.got = p.find(v, st, err)
		if v.got == nil {
			p.t.Fatalf("receive %d at rank %d from %d, tag %d: %+v, %v: no such message was sent, or it came twice", i, v.at, v.source, v.tag, st, err)
		}
		v.got.received = true
		p.overtaken(i)
	}
	for i, m := range p.sends {
		if m.cancelled == m.received {
			p.t.Fatalf("message %d from %d to %d, tag %d, %d bytes: received %v, cancelled %v", i, m.from, m.to, m.tag, len(m.contents), m.received, m.cancelled)
		}
	}
}

// find returns the first message that could be what v got.
func (p *play) find(v *reception, st Status, err error) *message {
	for _, m := range p.sends {
		if !m.received && !m.cancelled && m.from == int(st.Source) && m.to == v.at && m.tag == st.Tag && int64(len(m.contents)) >= st.Bytes &&
			(err != nil) == (len(m.contents) > len(v.buf)) && bytes.Equal(m.contents[:st.Bytes], v.buf[:st.Bytes]) &&
			(err != nil || int(st.Bytes) == len(m.contents)) {
			return m
		}
	}
	return nil
}

// overtaken checks that of two receives the older gets the older message of one sender if it fits both (MPI 4.1 §3.5).
// Messages of few bytes look the same, and what a probe has taken is matched by the probe.
func (p *play) overtaken(i int) {
	young := p.receives[i]
	for _, old := range p.receives[:i] {
		if old.got == nil || old.probed || young.probed || old.at != young.at || old.got.from != young.got.from ||
			len(old.got.contents) < 10 || len(young.got.contents) < 10 {
			continue
		}
		if p.age(old.got) > p.age(young.got) && (old.tag == AnyTag || old.tag == young.got.tag) {
			p.t.Errorf("rank %d: messages %d and %d of rank %d have changed places", old.at, p.age(young.got), p.age(old.got), old.got.from)
		}
	}
}

func (p *play) age(m *message) int {
	for i, o := range p.sends {
		if o == m {
			return i
		}
	}
	return -1
}

// FuzzPackets lets rank 1 send rank 0 anything that a transport lets through, while rank 0 has operations of every kind
// under way with it. Nothing panics, rank 0's books stay right, what it holds for rank 1 stays within the grant, and
// its traffic with rank 2 is not touched.
func FuzzPackets(f *testing.F) {
	for seed := uint64(0); seed < 150; seed += inShort[uint64](1, 5) {
		f.Add(randomBytes(seed, 100+int(seed)*4))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		a := &attack{t: t, fuzzInput: fuzzInput{data[:min(len(data), 4000)]}}
		a.run()
	})
}

type attack struct {
	fuzzInput
	t       *testing.T
	net     *testNet
	open    []*Request
	matched []*Message
	nic     func(rank int) *testNIC // what the ranks have; nil: none
}

func (a *attack) run() {
	n := newTestNet(netOptions{ranks: 3, eagerMax: 256, fragMax: 512, unexpectedMax: 1, put: true, nic: a.nic})
	a.net, n.hostile = n, true
	defer n.close()
	e := n.engines[0]
	a.open = append(a.open, []*Request{
		e.Isend(nil, 1, 1, 1, make([]byte, 3000), Standard),
		e.Isend(nil, 1, 1, 1, make([]byte, 10), Synchronous),
		e.Isend(nil, 1, 1, 2, make([]byte, 700), Standard),
		e.Irecv(nil, 1, 1, 1, make([]byte, 3000)),
		e.Irecv(nil, 1, AnySource, 2, make([]byte, 100)),
		e.Irecv(nil, 1, 1, AnyTag, make([]byte, 1000)),
		e.Irecv(nil, 1, 1, 0, nil),
	}...)
	n.awaitConnects()
	p := e.links.peer(1)
	for a.more() && !a.t.Failed() {
		a.step()
		n.awaitConnects()
		n.check(a.t)
		// The message that overdraws is the last.
		held, grant := books(p.in, "held"), books(p.in, "max")
		if held > grant && (p.err == nil || held > grant+eager.Cost(attackMost)) {
			a.t.Fatalf("%d bytes are held for a peer that was granted %d", held, grant)
		}
		if (p.err != nil) && (p.out.Max >= 0 || p.queue.len()+p.control.len()+len(p.starters) > 0 || p.stalled) {
			a.t.Fatalf("something is left of a peer that has failed: %+v", p)
		}
	}
	a.honest()
	e.Fail(errOver)
	for i, r := range a.open {
		if done, _, _ := r.Test(); !done {
			a.t.Errorf("operation %d has no end", i)
		}
	}
	if pending := e.Pending(); pending != 0 {
		a.t.Errorf("%d operations under way after the end", pending)
	}
	if len(n.regions) != 0 {
		a.t.Errorf("%d buffers are still registered", len(n.regions))
	}
}

func (a *attack) step() {
	n, e := a.net, a.net.engines[0]
	switch a.upTo(16) {
	case 0:
		a.open = append(a.open, e.Isend(nil, 1, 1, int32(a.upTo(3)), make([]byte, playSizes[a.upTo(len(playSizes))]), Mode(a.upTo(2))))
	case 1:
		a.open = append(a.open, e.Irecv(nil, 1, a.upTo(2)*2-1, int32(a.upTo(4)-1), make([]byte, playSizes[a.upTo(len(playSizes))])))
	case 2:
		if err := a.open[a.upTo(len(a.open))].Cancel(); err != nil {
			a.t.Error(err)
		}
	case 3:
		if m, _, found, _ := e.Iprobe(1, AnySource, AnyTag, true); found {
			a.matched = append(a.matched, m)
		}
	case 4:
		if k := len(a.matched); k > 0 {
			r, err := e.Imrecv(nil, a.matched[k-1], make([]byte, playSizes[a.upTo(len(playSizes))]))
			if err != nil {
				a.t.Error(err)
			}
			a.open, a.matched = append(a.open, r), a.matched[:k-1]
		}
	case 5:
		n.rooms[[2]int{0, 1}] = a.upTo(8)
		n.wires[[2]int{0, 1}] = nil // it reads what it likes
		n.work(0)
	case 6:
		e.lock()
		e.path.stalled()
		e.links.letSendersGoOn(nil)
		e.exitCall()
		e.unlock()
		n.work(0)
	case 7:
		n.polls[1] = a.upTo(2) == 0
		n.waits[1] = a.upTo(2) == 0
		n.prefer(0, rendezvous.Schemes[a.upTo(3)])
	case 8:
		e.DropContext(1, errors.New("freed"))
	default:
		a.packet()
	}
}

const attackMost = 3000

var attackNumbers = [...]uint64{0, 1, 10, 512, 700, 3000, 1 << 20, math.MaxInt64, math.MaxInt64 + 1, math.MaxUint64, 320, 384}

func (a *attack) packet() {
	number := func() uint64 { return attackNumbers[a.upTo(len(attackNumbers))] }
	id := func() uint64 { return uint64(a.upTo(6))<<32 | uint64(a.upTo(9)) }
	h := wire.Header{Kind: wire.Kind(a.upTo(18)), Flags: uint8(a.upTo(64)), Ctx: 1, Tag: int32(a.upTo(3)), ID: id(), Len: number(), Addr: number(), Key: id()}
	if h.Kind == wire.RTS && a.upTo(2) == 0 {
		h.Len = uint64(playSizes[a.upTo(len(playSizes))])
	}
	size := 0 // attackMost at most
	if k := h.Kind; k == wire.Eager || k == wire.EagerSync || k == wire.Data {
		size = playSizes[a.upTo(9)]
	}
	pkt := transport.Packet{Peer: 1, Header: h, Payload: make([]byte, size)}
	if h.Kind == wire.Batch {
		pkt.Payload = a.batch()
	}
	if d := a.net.devices[0]; a.upTo(20) == 19 {
		d.inbox = append(d.inbox, pkt) // around the NIC, if there is one
	} else {
		d.receive(pkt)
	}
	a.net.work(0)
}

// batch is one of a few messages, with a few bytes changed or cut off.
func (a *attack) batch() (b []byte) {
	for range a.upTo(6) {
		b = wire.AppendBatch(b, uint32(a.upTo(3)), int32(a.upTo(3)), make([]byte, playSizes[a.upTo(8)]))
	}
	for range a.upTo(4) - 1 {
		if at := a.upTo(256); at < len(b) {
			b[at] = byte(a.upTo(256))
		}
	}
	return b[:len(b)-min(a.upTo(20), len(b))*(a.upTo(3)/2)]
}

// honest exchanges messages with rank 2, each way by each protocol.
func (a *attack) honest() {
	n := a.net
	clear(n.polls)
	const ctx = 2
	for _, size := range []int{10, 5000, 20_000} {
		for _, w := range [][2]int{{0, 2}, {2, 0}} {
			out, in := contents(w[0], 1, size), make([]byte, size)
			from, to := n.engines[w[0]], n.engines[w[1]]
			s := from.Isend(nil, ctx, w[1], 1, out, Synchronous)
			r := to.Irecv(nil, ctx, w[0], 1, in)
			n.awaitConnects()
			for range 10 {
				n.deliver(w[0], math.MaxInt)
				n.deliver(w[1], math.MaxInt)
			}
			done1, _, err1 := s.Test()
			done2, _, err2 := r.Test()
			if !done1 || !done2 || err1 != nil || err2 != nil || !bytes.Equal(in, out) {
				a.t.Errorf("%d bytes from %d to %d: %v %v, %v %v", size, w[0], w[1], done1, err1, done2, err2)
			}
		}
	}
}
