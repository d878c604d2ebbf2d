package pml

import (
	"bytes"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/gorun-mpi/mpi/internal/testkit/proc"
	"github.com/gorun-mpi/mpi/transport"
)

// The schedules of FuzzSchedule, over devices that match tags.
func TestScheduleOverNIC(t *testing.T) {
	for seed := uint64(0); seed < 300; seed += inShort[uint64](1, 10) {
		p := &play{t: t, fuzzInput: fuzzInput{randomBytes(seed+1000, 300+int(seed)*5)}, messages: map[*Message]int{},
			nics: true}
		p.run()
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

// nic is a NIC with habits of its own, or none.
func (p *play) nic(rank int) *testNIC {
	if p.upTo(5) == 0 {
		return nil
	}
	return &testNIC{limits: nicLimits{Tags: 1 + p.upTo(12), Min: 256}, rng: rand.New(rand.NewPCG(uint64(p.upTo(256)), uint64(p.upTo(256)))),
		refuse: p.upTo(3) * 4, noSync: p.upTo(2) == 0, noRead: p.upTo(4) == 0}
}

// The packets of FuzzPackets, through a device that matches tags.
func TestPacketsOverNIC(t *testing.T) {
	for seed := uint64(0); seed < 300; seed += inShort[uint64](1, 10) {
		a := &attack{t: t, fuzzInput: fuzzInput{randomBytes(seed+2000, 200+int(seed)*5)}, nic: func(rank int) *testNIC {
			return &testNIC{limits: nicLimits{Tags: 8, Min: 256}, rng: rand.New(rand.NewPCG(seed, uint64(rank)))}
		}}
		a.run()
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

// The scripts of testdata over devices that match tags: other packets travel, but every operation has the same result.
func TestTracesOverNIC(t *testing.T) {
	eachScript(t, func(t *testing.T, file, text string) {
		want := results(text)
		for _, noRead := range []bool{false, true} {
			if !noRead && strings.Contains(file, "down") {
				continue // of ranks that end in the middle of a transfer, which the device has done long before
			}
			if got := results((&script{t: t, nics: true, noRead: noRead}).run(text)); !slices.Equal(got, want) {
				t.Errorf("rendezvous by software %v: got %q,\nwant %q", noRead, got, want)
			}
		}
	})
}

// results are the lines of a trace that say how operations have ended.
func results(trace string) (found []string) {
	for line := range strings.Lines(trace) {
		if name, what, ok := strings.Cut(strings.TrimSpace(line), ": "); ok && strings.HasPrefix(line, "\t") && !strings.Contains(name, " ") {
			found = append(found, name+": "+what)
		}
	}
	slices.Sort(found)
	return found
}

// TestOffloadAgainstModel compares who gets which message at rank 0, which has a NIC for rank 1 but not for rank 2 and
// itself, with two lists and a linear scan. The model is driven by what the engine polls: a message, or that one has been
// matched; and by what has become of a cancel.
func TestOffloadAgainstModel(t *testing.T) {
	var all Stats
	seeds := inShort[uint64](1000, 40)
	if proc.Race { // which looks for other things
		seeds = min(seeds, 100)
	}
	for seed := range seeds {
		m := &modelled{t: t, seed: seed, rng: rand.New(rand.NewPCG(seed, 77))}
		s := m.run()
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
		all.OffloadMatches += s.OffloadMatches
		all.OffloadTakenBack += s.OffloadTakenBack
		all.SoftwareMatches += s.SoftwareMatches
		for i, n := range s.OffloadFallbacks {
			all.OffloadFallbacks[i] += n
		}
	}
	t.Logf("%+v", all)
	if all.OffloadMatches < 2*seeds || all.OffloadTakenBack < 2*seeds || all.SoftwareMatches < 5*seeds {
		t.Errorf("the schedules are too tame: %+v", all)
	}
	for why, n := range all.OffloadFallbacks {
		if n == 0 {
			t.Errorf("no receive has stayed with software because of %v", Fallback(why))
		}
	}
}

// The model: entries in order of age. id: of a message its place in modelled.sends, of a receive that in receives.
type modelEntry struct {
	ctx         uint32
	source, tag int32
	id          int
}

func (r modelEntry) takes(m modelEntry) bool {
	return r.ctx == m.ctx && (r.source == AnySource || r.source == m.source) && (r.tag == AnyTag || r.tag == m.tag)
}

type modelled struct {
	t     *testing.T
	seed  uint64
	rng   *rand.Rand
	net   *testNet
	nic   *testNIC
	eager int // how often software polls
	ahead int // receives that are posted before messages are sent
	short int // in seven of so many the buffer is less than the longest message
	wild  int // in one of so many receives the source is a wildcard

	sends    []*modelSend
	bySender [3][]int // messages in the order in which they were sent to rank 0
	receives []*modelReceive

	posted, unexpected []modelEntry
}

type modelSend struct {
	from, size int
	tag        int32
	ctx        uint32
	contents   []byte
	r          *Request
	to         int // receive; -1: none
}

type modelReceive struct {
	modelEntry
	buf     []byte
	r       *Request
	got     int // message; -1: none
	dropped bool
}

func (m *modelled) run() Stats {
	r := m.rng
	m.ahead = r.IntN(8)
	m.eager = []int{2, 10, 60}[r.IntN(3)]
	m.short = []int{16, 60, 500}[r.IntN(3)]
	m.wild = []int{8, 30, 1000}[r.IntN(3)]
	m.nic = &testNIC{limits: nicLimits{Tags: 1 + r.IntN(24), Min: 256}, peers: []int{1}, rng: r, refuse: r.IntN(3) * 20, noSync: r.IntN(2) == 0, noRead: r.IntN(4) == 0}
	m.net = newTestNet(netOptions{ranks: 3, eagerMax: 256, fragMax: 512, unexpectedMax: 1, nic: func(rank int) *testNIC {
		if rank == 0 {
			return m.nic
		}
		return nil
	}})
	defer m.net.close()
	for range 5 { // before any rank is connected
		m.step()
		m.net.awaitConnects()
	}
	if r.IntN(2) == 0 {
		m.net.linkAll()
	}
	for range 60 + r.IntN(80) {
		m.step()
		m.net.awaitConnects()
		m.net.check(m.t)
		if m.t.Failed() {
			return Stats{}
		}
	}
	m.finish()
	m.checkResults()
	return m.net.engines[0].Stats()
}

func (m *modelled) step() {
	switch m.rng.IntN(13) {
	case 0, 1, 2, 3:
		m.post()
	case 4, 5, 6:
		if len(m.posted) >= m.ahead {
			m.send()
		} else {
			m.post()
		}
	case 7, 8:
		m.hear(false)
	case 9:
		m.net.deliver(1+m.rng.IntN(2), 1+m.rng.IntN(3))
	case 10:
		m.cancel()
	case 11:
		m.probe()
	case 12:
		for range m.rng.IntN(m.eager) {
			m.hear(false)
		}
	}
}

var modelContexts = []uint32{4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 5, 5, 5, 1 << 16}

func (m *modelled) envelope() (ctx uint32, source, tag int32) {
	r := m.rng
	ctx, source, tag = modelContexts[r.IntN(len(modelContexts))], 1, int32(r.IntN(3))
	switch r.IntN(12) {
	case 0:
		source = 0
	case 1:
		source = 2
	}
	if r.IntN(m.wild) == 0 {
		source = AnySource
	}
	if r.IntN(m.wild) == 0 {
		tag = AnyTag
	}
	return ctx, source, tag
}

func (m *modelled) post() {
	v := &modelReceive{got: -1}
	v.ctx, v.source, v.tag = m.envelope()
	v.id = len(m.receives)
	v.buf = make([]byte, []int{0, 32, 255, 256, 257, 300, 3000, 20_000}[min(m.rng.IntN(m.short), 7)])
	if old := len(m.receives); old > 0 && m.rng.IntN(3) == 0 { // of one that has been over for a moment, perhaps
		if o := m.receives[max(0, old-1-m.rng.IntN(5))]; o.r.state == stDone {
			v.buf, o.buf = o.buf, slices.Clone(o.buf)
		}
	}
	m.receives = append(m.receives, v)
	v.r = m.net.engines[0].Irecv(nil, v.ctx, int(v.source), v.tag, v.buf)
	for i, u := range m.unexpected {
		if v.takes(u) {
			m.unexpected = slices.Delete(m.unexpected, i, i+1)
			m.pair(v.id, u.id)
			return
		}
	}
	m.posted = append(m.posted, v.modelEntry)
}

func (m *modelled) pair(receive, message int) {
	m.receives[receive].got, m.sends[message].to = message, receive
}

// arrive is called when the engine has heard of a message, by itself or with its receive.
func (m *modelled) arrive(id int) {
	s := m.sends[id]
	e := modelEntry{s.ctx, int32(s.from), s.tag, id}
	for i, v := range m.posted {
		if v.takes(e) {
			m.posted = slices.Delete(m.posted, i, i+1)
			m.pair(v.id, id)
			return
		}
	}
	m.unexpected = append(m.unexpected, e)
}

func (m *modelled) send() {
	s := &modelSend{to: -1}
	var source int32
	s.ctx, source, s.tag = m.envelope()
	s.from, s.tag = int(max(source, 0)), max(s.tag, 0)
	if source == AnySource {
		s.from = 1
	}
	s.size = playSizes[m.rng.IntN(len(playSizes))]
	id := len(m.sends)
	s.contents = contents(id, id*5, s.size)
	m.sends = append(m.sends, s)
	m.bySender[s.from] = append(m.bySender[s.from], id)
	s.r = m.net.engines[s.from].Isend(nil, s.ctx, 0, s.tag, s.contents, Mode(m.rng.IntN(4)/3))
	m.net.awaitConnects()
	if s.from == 0 { // it is here
		m.arrive(id)
	}
}

// hear gives the engine of rank 0 one packet.
func (m *modelled) hear(all bool) {
	n, d := m.net, m.net.devices[0]
	n.mu.Lock()
	for _, from := range m.rng.Perm(3) {
		w := [2]int{from, 0}
		for len(n.wires[w]) > 0 && (all || m.rng.IntN(2) == 0) {
			pkt := n.wires[w][0]
			n.wires[w] = n.wires[w][1:]
			if from == 1 {
				d.receive(pkt)
				continue
			}
			d.inbox = append(d.inbox, pkt)
			break
		}
	}
	if len(d.inbox) == 0 || m.rng.IntN(2) == 0 {
		m.nic.some()
		for len(m.nic.ops) > 0 && all {
			m.nic.runOp()
		}
		for len(m.nic.running) > 0 && all {
			m.nic.end(m.nic.running[0])
			m.nic.running = m.nic.running[1:]
		}
		if k := min(len(m.nic.cq), 1); len(d.inbox) == 0 {
			d.inbox = append(d.inbox, m.nic.cq[:k]...)
			m.nic.cq = m.nic.cq[k:]
		}
	}
	queue := d.inbox
	n.mu.Unlock()
	for _, pkt := range queue {
		d.inbox = []transport.Packet{pkt}
		m.note(&pkt)
		m.progress()
		m.noteCancelled()
	}
	m.progress() // streams and READs
	n.awaitConnects()
}

func (m *modelled) progress() {
	e := m.net.engines[0]
	e.lock()
	e.progress()
	e.exitCall()
	e.unlock()
}

// note tells the model what the engine is about to hear.
func (m *modelled) note(pkt *transport.Packet) {
	switch pkt.Event {
	case transport.Arrived, transport.Unmatched:
		for i := range messagesIn(pkt) {
			m.arrive(m.bySender[pkt.Peer][int(pkt.Cookie)-1+i])
		}
	case transport.OffloadMatched, transport.OffloadDone:
		m.net.mu.Lock()
		e := m.nic.entries[pkt.Cookie]
		m.net.mu.Unlock()
		if !e.told {
			e.told = true
			m.arrive(m.bySender[pkt.Peer][e.message.Cookie-1])
		}
	}
}

// noteCancelled takes note of what has been cancelled.
func (m *modelled) noteCancelled() {
	m.posted = slices.DeleteFunc(m.posted, func(e modelEntry) bool {
		v := m.receives[e.id]
		gone := v.r.state == stDone && v.r.status.Cancelled
		v.dropped = v.dropped || gone
		return gone
	})
}

func (m *modelled) cancel() {
	if len(m.receives) == 0 {
		return
	}
	v := m.receives[len(m.receives)-1-m.rng.IntN(min(6, len(m.receives)))]
	if err := v.r.Cancel(); err != nil {
		m.t.Error(err)
	}
	m.noteCancelled()
}

func (m *modelled) probe() {
	ctx, source, tag := m.envelope()
	take := m.rng.IntN(2) == 0
	msg, st, found, err := m.net.engines[0].Iprobe(ctx, int(source), tag, take)
	if err != nil {
		m.t.Error(err)
		return
	}
	want := slices.IndexFunc(m.unexpected, func(u modelEntry) bool { return modelEntry{ctx, source, tag, 0}.takes(u) })
	if found != (want >= 0) {
		m.t.Errorf("Iprobe(%d, %d, %d) finds one: %v, the model has %d", ctx, source, tag, found, want)
		return
	}
	if !found {
		return
	}
	u := m.unexpected[want]
	if s := m.sends[u.id]; st.Source != u.source || st.Tag != u.tag || st.Bytes != int64(s.size) {
		m.t.Errorf("Iprobe(%d, %d, %d) finds %+v, the model message %d: %+v", ctx, source, tag, st, u.id, u)
	}
	if !take {
		return
	}
	m.unexpected = slices.Delete(m.unexpected, want, want+1)
	v := &modelReceive{modelEntry: modelEntry{u.ctx, u.source, u.tag, len(m.receives)}, buf: make([]byte, 20_000)}
	m.receives = append(m.receives, v)
	if v.r, err = m.net.engines[0].Imrecv(nil, msg, v.buf); err != nil {
		m.t.Error(err)
	}
	m.pair(v.id, u.id)
}

func (m *modelled) finish() {
	n := m.net
	n.linkAll()
	for turn := 0; ; turn++ {
		m.hear(true)
		n.deliver(1, math.MaxInt)
		n.deliver(2, math.MaxInt)
		n.check(m.t)
		quiet := n.empty() && len(n.devices[0].inbox) == 0
		if quiet && len(m.unexpected) > 0 {
			u := m.unexpected[0]
			v := &modelReceive{modelEntry: modelEntry{u.ctx, u.source, u.tag, len(m.receives)}, buf: make([]byte, 20_000), got: -1}
			m.receives = append(m.receives, v)
			v.r = n.engines[0].Irecv(nil, v.ctx, int(v.source), v.tag, v.buf)
			m.unexpected = m.unexpected[1:]
			m.pair(v.id, u.id)
			continue
		}
		if quiet {
			for _, e := range slices.Clone(m.posted) {
				m.receives[e.id].r.Cancel()
			}
			m.noteCancelled()
		}
		if quiet && n.engines[0].Pending()+n.engines[1].Pending()+n.engines[2].Pending() == 0 {
			break
		}
		if turn > 20_000 || m.t.Failed() {
			m.t.Fatalf("it does not come to an end: %d, %d and %d operations are under way, %d posted, quiet %v", n.engines[0].Pending(), n.engines[1].Pending(), n.engines[2].Pending(), len(m.posted), quiet)
		}
	}
	if k := len(m.nic.entries); k != 0 {
		m.t.Errorf("%d receives are left in the NIC", k)
	}
	if m.nic.seen != m.nic.counted {
		m.t.Errorf("%d packets were counted, Seen was said %d times", m.nic.counted, m.nic.seen)
	}
}

func (m *modelled) checkResults() {
	for i, v := range m.receives {
		done, st, err := v.r.Test()
		switch {
		case !done:
			m.t.Fatalf("receive %d has no end", i)
		case st.Cancelled:
			if !v.dropped || v.got >= 0 {
				m.t.Errorf("receive %d is cancelled; in the model it has message %d", i, v.got)
			}
			continue
		case v.got < 0:
			m.t.Fatalf("receive %d %+v has got %+v, %v; in the model none", i, v.modelEntry, st, err)
		}
		s := m.sends[v.got]
		n := min(s.size, len(v.buf))
		if st.Source != int32(s.from) || st.Tag != s.tag || st.Bytes != int64(n) || errors.Is(err, ErrTruncate) != (s.size > n) || err != nil && s.size <= n {
			m.t.Fatalf("receive %d %+v has got %+v, %v; in the model message %d, %+v", i, v.modelEntry, st, err, v.got, *s)
		}
		if !bytes.Equal(v.buf[:n], s.contents[:n]) {
			m.t.Fatalf("receive %d %+v has not got the contents of message %d of %d bytes", i, v.modelEntry, v.got, s.size)
		}
	}
	for i, s := range m.sends {
		if done, _, err := s.r.Test(); !done || err != nil || s.to < 0 {
			m.t.Fatalf("message %d: done %v, %v, received by %d", i, done, err, s.to)
		}
	}
}
