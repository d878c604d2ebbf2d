package pml

import (
	"context"
	"errors"
	"fmt"
	"math"
	"reflect"
	"runtime"
	"slices"
	"sync"
	"testing"

	"github.com/gorun-mpi/mpi/eager"
	"github.com/gorun-mpi/mpi/internal/wire"
	"github.com/gorun-mpi/mpi/rendezvous"
	"github.com/gorun-mpi/mpi/transport"
	"github.com/gorun-mpi/mpi/transport/loop"
)

// testNet is a network that the test is: packets stay on their wire until the test delivers them, READs fail when it
// says so, links are full when it says so. The engines on it are driven by one goroutine; their watchers sleep for
// good.
type testNet struct {
	engines []*Engine
	devices []*testDevice

	mu      sync.Mutex // guards what follows: connecting has a goroutine of its own
	wires   map[[2]int][]transport.Packet
	rooms   map[[2]int]int          // packets that a wire takes; absent: any number
	full    map[[2]int]bool         // wires that have refused a packet, and of which no Room has been told since
	gates   map[[2]int]chan error   // Connect waits for the word of the test
	regions map[uint64]registration // by number; an address is number * registeredAt
	last    uint64
	misuse  []string // what engines have done to links that they may not
	hostile bool     // packets have been sent that no engine would send
	refused bool     // Register says no
	slowReg bool     // Register says no, and endRMA ends what Prepare has begun; Revoke takes long
	ready   int      // registrations that Prepare has made and Register has not granted
	lateRMA bool     // READs and WRITEs are done when the test says so (endRMA)
	rma     []lateRMA
	lent    map[[2]int]bool   // wires whose link reads what it has been lent
	slowCut bool              // Down comes when the test says so
	cuts    map[[2]int]bool   // rank, peer: of links that the engine has cut
	noRoom  map[int]int       // rank: as many READs and WRITEs find no room
	reads   map[int]int       // rank: READs that will still succeed; absent: all
	most    int               // READs that have been done in one call
	writes  map[int]int       // likewise
	polls   map[int]bool      // rank: it looks at its rings (default: yes)
	waits   map[int]bool      // rank: it does, or sleeps in a call (default: no)
	numbers map[[2]int]uint64 // messages sent
	log     func(format string, args ...any)
}

// lateRMA is an operation of a rank that is under way. end does it, or ends it with an error.
type lateRMA struct {
	rank int
	end  func(error) transport.Packet
}

type registration struct {
	rank   int
	buf    []byte
	access transport.Access
}

type netOptions struct {
	ranks         int
	eagerMax      int // of the link
	eagerSure     int // likewise
	limit         int // Config.EagerMax
	fragMax       int
	unexpectedMax int64
	noGet, put    bool
	lends         bool
	nic           func(rank int) *testNIC // nil, or what it makes is: the rank's device matches nothing
	off           bool
	packets       bool // there is no Facts.Short
}

func newTestNet(o netOptions) *testNet {
	n := &testNet{wires: map[[2]int][]transport.Packet{}, rooms: map[[2]int]int{}, full: map[[2]int]bool{}, lent: map[[2]int]bool{}, cuts: map[[2]int]bool{},
		gates:   map[[2]int]chan error{},
		regions: map[uint64]registration{}, noRoom: map[int]int{}, reads: map[int]int{}, writes: map[int]int{}, polls: map[int]bool{}, waits: map[int]bool{}, numbers: map[[2]int]uint64{}, log: func(string, ...any) {}}
	for rank := range o.ranks {
		d := &testDevice{net: n, rank: rank, over: make(chan struct{}), put: o.put, lends: o.lends, shorts: !o.packets && o.nic == nil,
			caps: transport.Caps{EagerMax: o.eagerMax, EagerSure: o.eagerSure, FragMax: o.fragMax,
				WhyNoRMA: "the test says so"}, noGet: o.noGet}
		if o.nic != nil {
			if d.nic = o.nic(rank); d.nic != nil {
				d.nic.testDevice = d
			}
		}
		n.devices = append(n.devices, d)
	}
	mode := OffloadAuto
	if o.off {
		mode = OffloadOff
	}
	for rank := range o.ranks {
		n.engines = append(n.engines, newEngine(Config{Rank: rank, Size: o.ranks,
			Net: n.devices[rank], Self: loop.New(1)[0], Offload: mode,
			EagerMax: o.limit, UnexpectedMax: o.unexpectedMax,
			Lookup: func(_ context.Context, peer int) ([]byte, error) { return n.engines[peer].Address(), nil }}))
	}
	return n
}

func newEngine(cfg Config) *Engine {
	e, err := New(cfg)
	if err != nil {
		panic(err)
	}
	return e
}

var errOver = errors.New("the test is over")

// close is deferred. After a panic an engine's lock may be held.
func (n *testNet) close() {
	if p := recover(); p != nil {
		panic(p)
	}
	for _, gate := range n.gates {
		close(gate)
	}
	for i, e := range n.engines {
		d := n.devices[i]
		e.Fail(errOver)
		if d.nic != nil {
			n.mu.Lock()
			d.nic.tick(true)
			n.mu.Unlock()
		}
		e.lock()
		for len(d.inbox) > 0 && !e.gone {
			e.progress()
		}
		e.unlock()
		e.shut(func() { d.once.Do(func() { close(d.over) }) })
	}
}

// shut is Close whose devices the test closes.
func (e *Engine) shut(closeDevices func()) {
	e.lock()
	e.gone = true // the watcher finds that when it wakes
	e.unlock()
	closeDevices()
	e.stop()
	e.sleep.Close()
	e.wg.Wait()
	e.lock()
	e.path.finish()
	e.unlock()
}

// linkAll connects everybody with everybody.
func (n *testNet) linkAll() {
	for rank, e := range n.engines {
		e.lock()
		for peer := range n.engines {
			if peer != rank {
				e.links.peer(int32(peer)).ensureConnected()
			}
		}
		e.unlock()
	}
	n.awaitConnects()
}

// awaitConnects waits for the goroutines that connect and are not held back, and does what they have left because the
// test wanted the lock: the watcher would.
func (n *testNet) awaitConnects() {
	for _, e := range n.engines {
		for {
			e.lock()
			n.mu.Lock()
			waiting := false
			for _, p := range e.links.peers {
				waiting = waiting || p != nil && p.connecting && p.err == nil && n.gates[[2]int{e.cfg.Rank, int(p.rank)}] == nil
			}
			d := n.devices[e.cfg.Rank]
			left := !waiting && d.connected
			d.connected = d.connected && waiting
			n.mu.Unlock()
			for left && e.wait.leader == noLeader && e.load.pending != 0 && e.progress() != 0 {
			}
			e.unlock()
			if !waiting {
				break
			}
			runtime.Gosched()
		}
	}
}

// deliver hands what is on the wires to a rank over to it, at most count packets of each, and lets it poll until it
// has seen them.
func (n *testNet) deliver(rank, count int) {
	n.arrive(rank, count)
	n.work(rank)
}

// arrive is deliver without a poll.
func (n *testNet) arrive(rank, count int) {
	d := n.devices[rank]
	n.mu.Lock()
	for from := range n.devices {
		w := [2]int{from, rank}
		k := min(len(n.wires[w]), count)
		for _, pkt := range n.wires[w][:k] {
			d.receive(pkt)
		}
		n.wires[w] = n.wires[w][k:]
	}
	if d.nic != nil {
		d.nic.tick(count == math.MaxInt)
	}
	n.mu.Unlock()
}

// recv receives as Engine.Recv does, up to where that would wait: the result if a message has landed, or the request.
func (n *testNet) recv(rank int, ctx uint32, source int, tag int32, buf []byte) (r *Request, st Status) {
	e := n.engines[rank]
	e.lock()
	st, landed := e.links.land(ctx, int32(source), tag, buf, landPolls)
	e.exitCall()
	e.unlock()
	if !landed {
		r = e.Irecv(nil, ctx, source, tag, buf)
	}
	n.work(rank) // the rest of what is there
	return r, st
}

// work polls a rank once, and further while there is something to poll.
func (n *testNet) work(rank int) {
	if nic := n.devices[rank].nic; nic != nil {
		n.mu.Lock()
		nic.tick(false)
		n.mu.Unlock()
	}
	e := n.engines[rank]
	e.lock()
	for more := true; more; more = len(n.devices[rank].inbox) > 0 {
		if e.progress() == 0 && e.load.pending != 0 {
			n.misuse = append(n.misuse, fmt.Sprintf("rank %d has done nothing, and %d things are to do", rank, e.load.pending))
		}
	}
	e.exitCall()
	e.unlock()
	n.awaitConnects()
}

// receive is what happens to a packet at the end of its wire.
func (d *testDevice) receive(pkt transport.Packet) {
	if d.nic != nil && d.nic.behind(int(pkt.Peer)) {
		d.nic.arrive(pkt)
		return
	}
	d.inbox = append(d.inbox, pkt)
}

func (n *testNet) empty() bool {
	for _, d := range n.devices {
		if d.nic != nil && d.nic.busy() {
			return false
		}
	}
	for _, w := range n.wires {
		if len(w) > 0 {
			return false
		}
	}
	return true
}

// testDevice is one rank's end of a testNet.
type testDevice struct {
	net    *testNet
	rank   int
	caps   transport.Caps
	noGet  bool
	put    bool
	lends  bool           // its links have ZeroCopy, which places nothing
	nic    *testNIC       // nil: none
	gpus   *testGPUs      // nil: its links reach memory of the host only
	shorts bool           // there is Facts.Short
	own    *transport.RMA // reaches this rank; nil: nothing does
	wakes  bool           // callers that sleep can be woken
	polls  int
	// connected: Connect has returned since awaitConnects has found no goroutine that connects. Guarded by testNet.mu.
	connected bool
	inbox     []transport.Packet // delivered and not polled; guarded by the engine's lock
	over      chan struct{}      // closed at the end of the test, or of the device
	once      sync.Once
}

func (d *testDevice) Name() string    { return "test" }
func (d *testDevice) Address() []byte { return []byte{byte(d.rank)} }

func (d *testDevice) Connect(ctx context.Context, peer int, _ []byte) (transport.Link, error) {
	d.net.mu.Lock()
	gate := d.net.gates[[2]int{d.rank, peer}]
	d.net.mu.Unlock()
	defer func() {
		d.net.mu.Lock()
		d.connected = true
		d.net.mu.Unlock()
	}()
	if gate != nil {
		select {
		case err := <-gate:
			if err != nil {
				return nil, err
			}
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return newTestLink(d, peer), nil
}

func (d *testDevice) Poll(pkts []transport.Packet) int {
	d.polls++
	d.tellRoom()
	n := copy(pkts, d.inbox)
	d.inbox = d.inbox[n:]
	if d.nic != nil {
		d.nic.polled(pkts[:n])
	}
	return n
}

func (d *testDevice) short() (m transport.Short, payload []byte, found transport.Found) {
	d.tellRoom()
	switch {
	case len(d.inbox) == 0:
		return m, nil, transport.FoundNothing
	case d.inbox[0].Event != transport.Arrived || d.inbox[0].Header.Kind != wire.Eager || len(d.inbox[0].Payload) > testShort:
		return m, nil, transport.FoundOther
	}
	pkt := &d.inbox[0]
	d.inbox = d.inbox[1:]
	return transport.Short{Source: pkt.Peer, Tag: pkt.Header.Tag, Ctx: pkt.Header.Ctx}, pkt.Payload, transport.FoundShort
}

// testShort is the longest message that Facts.Short of a testDevice returns.
const testShort = 200

func (d *testDevice) Arm(transport.Level) bool { return len(d.inbox) == 0 }
func (d *testDevice) Disarm()                  {}

// Facts has a Clear that makes each sleep last until the end of the test, but for callers of a device that wakes.
func (d *testDevice) Facts() *transport.Facts {
	f := &transport.Facts{Wake: []transport.Wake{{FD: -1, ThreadFD: -1, Clear: func(thread bool) {
		if !thread || !d.wakes {
			<-d.over
		}
	}}}}
	if d.shorts {
		f.Short = d.short
	}
	if d.nic != nil {
		f.Offload = d.nic.offload()
	}
	if d.own != nil {
		f.OwnRMA = func() *transport.RMA { return d.own }
	}
	return f
}

func (d *testDevice) Close() error {
	d.once.Do(func() { close(d.over) })
	return nil
}

// testGPUs is how the links of a testDevice reach device memory.
type testGPUs struct {
	devices transport.Devices
	get     func(l *testLink, dst uint64, n int64, cookie uint64) (transport.State, error)
}

type testLink struct {
	d    *testDevice
	peer int
	caps transport.Caps
}

func newTestLink(d *testDevice, peer int) *testLink {
	l := &testLink{d: d, peer: peer, caps: d.caps}
	l.caps.Presence = &transport.Presence{Polls: l.peerPolls, Waits: l.peerWaits}
	l.caps.Cut = l.cut
	if !d.noGet {
		l.caps.RMA = &transport.RMA{Register: l.register, Prepare: l.prepare, Deregister: l.deregister,
			Revoke: l.revoke, Get: l.get}
		if d.put {
			l.caps.RMA.Put = l.putTo
			l.caps.RMA.GetSome = l.getSome
		}
	}
	if g := d.gpus; g != nil && l.caps.RMA != nil {
		l.caps.RMA.Devices = &g.devices
		l.caps.RMA.GetDevice = func(dst uint64, n int64, _, _, _, cookie uint64) (transport.State, error) {
			return g.get(l, dst, n, cookie)
		}
	}
	if d.lends {
		l.caps.ZeroCopy = &transport.ZeroCopy{Max: d.caps.FragMax, Send: l.lend, Reads: l.reads,
			Place: func(uint64, int32, transport.Mem, int64) {}, Displace: func(uint64) {}}
	}
	for _, end := range [][2]int{{d.rank, peer}, {peer, d.rank}} {
		nic := d.net.devices[end[0]].nic
		l.caps.Offload = l.caps.Offload || nic != nil && nic.behind(end[1])
	}
	return l
}

// Caps may change for a test in FragMax.
func (l *testLink) Caps() *transport.Caps {
	l.caps.FragMax = l.d.caps.FragMax
	return &l.caps
}

func (l *testLink) TrySend(h *wire.Header, payload []byte) bool {
	n := l.d.net
	n.mu.Lock()
	defer n.mu.Unlock()
	w := [2]int{l.d.rank, l.peer}
	if !n.hasRoom(w) || len(payload) > l.d.caps.FragMax {
		n.full[w] = true
		return false
	}
	n.log("%s", describe(l.d.rank, l.peer, h, payload))
	pkt := transport.Packet{Peer: int32(l.d.rank), Header: *h, Payload: append([]byte(nil), payload...)}
	if k := messagesIn(&pkt); k != 0 { // numbered, for tests that follow each: the first of them
		pkt.Cookie = n.numbers[w] + 1
		n.numbers[w] += uint64(k)
	}
	n.wires[w] = append(n.wires[w], pkt)
	return true
}

// messagesIn is how many messages a packet holds.
func messagesIn(pkt *transport.Packet) int {
	if isMessage(pkt.Header.Kind) {
		return 1
	}
	return len(batched(pkt))
}

// batched are the sizes of the messages in a batch.
func batched(pkt *transport.Packet) (sizes []int) {
	if pkt.Header.Kind != wire.Batch {
		return nil
	}
	for rest := pkt.Payload; len(rest) > 0; {
		_, _, payload, left, err := wire.NextInBatch(rest)
		if err != nil {
			break // of a hostile test
		}
		sizes, rest = append(sizes, len(payload)), left
	}
	return sizes
}

func (l *testLink) lend(h *wire.Header, payload transport.Mem) bool {
	return l.TrySend(h, payload.Bytes())
}

func (l *testLink) reads() bool {
	n := l.d.net
	n.mu.Lock()
	defer n.mu.Unlock()
	w := [2]int{l.d.rank, l.peer}
	n.full[w] = n.full[w] || n.lent[w]
	return n.lent[w]
}

// hasRoom reports whether one more packet finds room on a wire. mu is held.
func (n *testNet) hasRoom(w [2]int) bool {
	room, limited := n.rooms[w]
	return !n.lent[w] && (!limited || len(n.wires[w]) < room)
}

// tellRoom puts Room into the inbox for wires that have refused something and have room now.
func (d *testDevice) tellRoom() {
	n := d.net
	n.mu.Lock()
	defer n.mu.Unlock()
	for peer := range n.devices {
		if w := [2]int{d.rank, peer}; n.full[w] && n.hasRoom(w) {
			delete(n.full, w)
			d.inbox = append(d.inbox, transport.Packet{Event: transport.Room, Peer: int32(peer)})
		}
	}
}

func (l *testLink) peerPolls() bool {
	l.d.net.mu.Lock()
	defer l.d.net.mu.Unlock()
	polls, said := l.d.net.polls[l.peer]
	return polls || !said
}

// peerWaits reports whether the peer waits, which it does only where a test says so.
func (l *testLink) peerWaits() bool {
	l.d.net.mu.Lock()
	defer l.d.net.mu.Unlock()
	return l.d.net.waits[l.peer]
}

// cut is followed by Down at once, unless the test sends that.
func (l *testLink) cut() {
	n := l.d.net
	n.mu.Lock()
	defer n.mu.Unlock()
	if w := [2]int{l.d.rank, l.peer}; n.cuts[w] {
		n.misuse = append(n.misuse, fmt.Sprintf("rank %d cuts its link to %d twice", w[0], w[1]))
	} else {
		n.cuts[w] = true
	}
	if !n.slowCut {
		l.d.inbox = append(l.d.inbox, transport.Packet{Event: transport.Down, Peer: int32(l.peer), Err: errors.New("cut")})
	}
}

// refuses reports whether an operation of RMA finds no room. mu is held.
func (l *testLink) refuses() bool {
	n, w := l.d.net, [2]int{l.d.rank, l.peer}
	if n.noRoom[l.d.rank] == 0 {
		return false
	}
	n.noRoom[l.d.rank]--
	n.full[w] = true
	return true
}

// later does an operation of RMA when the test says so. mu is held.
func (l *testLink) later(cookie uint64, do func()) (transport.State, error) {
	l.d.net.rma = append(l.d.net.rma, lateRMA{l.d.rank, func(err error) transport.Packet {
		if err == nil {
			do()
		}
		return transport.Packet{Event: transport.RMADone, Peer: int32(l.peer), Cookie: cookie, Err: err}
	}})
	return transport.Started, nil
}

// endRMA ends the oldest operation that is under way.
func (n *testNet) endRMA(err error) {
	n.mu.Lock()
	op := n.rma[0]
	n.rma = n.rma[1:]
	n.mu.Unlock()
	n.devices[op.rank].inbox = append(n.devices[op.rank].inbox, op.end(err))
	n.work(op.rank)
}

// rmaUnderWay is how many operations are.
func (n *testNet) rmaUnderWay() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.rma)
}

// sayDown lets a rank hear that another is gone.
func (n *testNet) sayDown(rank, of int) {
	n.devices[rank].inbox = append(n.devices[rank].inbox,
		transport.Packet{Event: transport.Down, Peer: int32(of), Err: transport.ErrPeerGone})
	n.work(rank)
}

const registeredAt = 1 << 32

func (l *testLink) register(mem transport.Mem, access transport.Access) (addr, key uint64, ok bool) {
	if access != transport.Readable && access != transport.Writable && access&transport.Lasting == 0 {
		panic(fmt.Sprintf("a peer is given access %d; no transfer needs more than one of both kinds", access))
	}
	n := l.d.net
	n.mu.Lock()
	defer n.mu.Unlock()
	slow := n.slowReg && access != transport.Writable
	if n.refused || slow && n.ready == 0 {
		return 0, 0, false
	}
	if slow {
		n.ready--
	}
	n.last++
	n.regions[n.last] = registration{l.d.rank, mem.Bytes(), access}
	return n.last * registeredAt, 0, true
}

func (l *testLink) prepare(_ transport.Mem, _ transport.Access, cookie uint64) bool {
	n := l.d.net
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.slowReg {
		return false
	}
	l.later(cookie, func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.ready++
	})
	return true
}

func (l *testLink) deregister(addr, key uint64) {
	n := l.d.net
	if l.d.gpus != nil && key != 0 {
		return // of device memory
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if r, ok := n.regions[addr/registeredAt]; !ok || r.rank != l.d.rank || addr%registeredAt != 0 || key != 0 {
		n.misuse = append(n.misuse, fmt.Sprintf("rank %d deregisters address %#x, key %d, which it has not registered", l.d.rank, addr, key))
	}
	delete(n.regions, addr/registeredAt)
}

func (l *testLink) revoke(addr, key uint64) (end func()) {
	if !l.d.net.slowReg {
		l.deregister(addr, key)
		return nil
	}
	return func() {
		l.d.net.engines[l.d.rank].Glance() // hangs if the caller has the lock
		l.deregister(addr, key)
	}
}

func (l *testLink) get(mem transport.Mem, addr, key, cookie uint64) (transport.State, error) {
	dst := mem.Bytes()
	n := l.d.net
	n.mu.Lock()
	defer n.mu.Unlock()
	if l.refuses() {
		return transport.Full, nil
	}
	if left, limited := n.reads[l.d.rank]; limited {
		if left == 0 {
			n.log("%d reads %d bytes of %d: fails", l.d.rank, len(dst), l.peer)
			return transport.Done, errors.New("the test says no")
		}
		n.reads[l.d.rank] = left - 1
	}
	r, ok := n.regions[addr/registeredAt]
	off := addr % registeredAt
	if !ok || r.rank != l.peer || r.access&transport.Readable == 0 || off > uint64(len(r.buf)) || uint64(len(dst)) > uint64(len(r.buf))-off {
		n.log("%d reads %d bytes of %d: not registered", l.d.rank, len(dst), l.peer)
		return transport.Done, errors.New("not registered")
	}
	if n.lateRMA {
		return l.later(cookie, func() { copy(dst, r.buf[off:]) })
	}
	copy(dst, r.buf[off:])
	n.log("%d reads bytes %d to %d of %d", l.d.rank, off, off+uint64(len(dst)), l.peer)
	return transport.Done, nil
}

// getSome does what get would do at once; the first that get would not do, and all behind it, are left.
func (l *testLink) getSome(reads []transport.Read) (done int) {
	n := l.d.net
	n.mu.Lock()
	late := n.lateRMA
	n.mu.Unlock()
	defer func() { n.most = max(n.most, done) }()
	for i := range reads {
		if st, err := transport.Full, error(nil); !late {
			if st, err = l.get(reads[i].Dst, reads[i].Addr, reads[i].Key, 0); st == transport.Done && err == nil {
				continue
			}
		}
		return i
	}
	return len(reads)
}

func (l *testLink) putTo(mem transport.Mem, addr, key, cookie uint64) (transport.State, error) {
	src := mem.Bytes()
	n := l.d.net
	n.mu.Lock()
	defer n.mu.Unlock()
	if l.refuses() {
		return transport.Full, nil
	}
	if left, limited := n.writes[l.d.rank]; limited {
		if left == 0 {
			n.log("%d writes %d bytes of %d: fails", l.d.rank, len(src), l.peer)
			return transport.Done, errors.New("the test says no")
		}
		n.writes[l.d.rank] = left - 1
	}
	r, ok := n.regions[addr/registeredAt]
	off := addr % registeredAt
	if !ok || r.rank != l.peer || r.access&transport.Writable == 0 || off > uint64(len(r.buf)) || uint64(len(src)) > uint64(len(r.buf))-off {
		if !n.hostile {
			n.misuse = append(n.misuse, fmt.Sprintf("rank %d writes %d bytes to address %#x of rank %d, which is not registered", l.d.rank, len(src), addr, l.peer))
		}
		return transport.Done, errors.New("not registered")
	}
	if n.lateRMA {
		return l.later(cookie, func() { copy(r.buf[off:], src) })
	}
	copy(r.buf[off:], src)
	n.log("%d writes %d bytes of %d at %d", l.d.rank, len(src), l.peer, off)
	return transport.Done, nil
}

// prefer makes a rank choose a scheme wherever it may choose.
func (n *testNet) prefer(rank int, s *rendezvous.Scheme) {
	e := n.engines[rank]
	e.lock()
	defer e.unlock()
	for from := range e.links.peers {
		p := e.links.peer(int32(from))
		p.tuner = rendezvous.Tuner{}
		p.tuner.Prefer(s)
	}
}

// describe prints the fields that a packet's kind has. Numbers of requests are printed as slot.use.
func describe(from, to int, h *wire.Header, payload []byte) string {
	s := fmt.Sprintf("%d->%d %v", from, to, h.Kind)
	id := func(v uint64) string { return fmt.Sprintf("%d.%d", uint32(v), v>>32) }
	switch h.Kind {
	case wire.Eager:
		s += fmt.Sprintf(" tag=%d len=%d", h.Tag, len(payload))
	case wire.Batch:
		for rest := payload; len(rest) > 0; {
			_, tag, payload, left, err := wire.NextInBatch(rest)
			if err != nil {
				return s + " " + err.Error()
			}
			s += fmt.Sprintf(" tag=%d len=%d", tag, len(payload))
			rest = left
		}
		if h.Flags&wire.Urgent != 0 {
			s += " urgent"
		}
	case wire.EagerSync:
		s += fmt.Sprintf(" tag=%d len=%d id=%s", h.Tag, len(payload), id(h.ID))
	case wire.RTS:
		s += fmt.Sprintf(" tag=%d len=%d id=%s", h.Tag, h.Len, id(h.ID))
		if h.Flags&wire.Readable != 0 {
			s += " readable"
		}
	case wire.CTS:
		s += fmt.Sprintf(" id=%s from=%d len=%d stream=%d", id(h.ID), h.Addr, h.Len, h.Tag)
	case wire.Data:
		s += fmt.Sprintf(" to=%s at=%d len=%d stream=%d", id(h.Key), h.Addr, len(payload), h.Tag)
	case wire.Credit:
		if s += fmt.Sprintf(" %d", h.Len); h.Addr|h.Key != 0 {
			s += fmt.Sprintf(" more=%d", h.Addr+h.Key)
		}
	case wire.CreditReq:
		s += fmt.Sprintf(" got=%d", h.Len)
	case wire.CancelReply:
		s += fmt.Sprintf(" id=%s taken-back=%d", id(h.ID), h.Len)
	case wire.PutReq:
		s += fmt.Sprintf(" id=%s len=%d", id(h.ID), h.Len)
	case wire.PutDone:
		s += fmt.Sprintf(" to=%s len=%d", id(h.Key), h.Len)
	default:
		s += fmt.Sprintf(" id=%s", id(h.ID))
	}
	return s
}

// books reads an account of package eager, which exports no fields.
func books(account any, field string) int64 { return reflect.ValueOf(account).FieldByName(field).Int() }

// onWire are the packets from one rank to another that its engine has not seen.
func (n *testNet) onWire(from, to int) []transport.Packet {
	pkts := slices.Clone(n.wires[[2]int{from, to}])
	if nic := n.devices[to].nic; nic != nil {
		for _, pkt := range nic.cq {
			if pkt.Event <= transport.Unmatched && pkt.Peer == int32(from) {
				pkts = append(pkts, pkt)
			}
		}
	}
	return pkts
}

// accounts checks that of each grant every byte is somewhere: with the sender, on a wire in either direction, held or
// owed by the receiver, or part of a transfer. It holds between any two calls as long as both engines are correct.
func (n *testNet) accounts() error {
	for from, sender := range n.engines {
		for to, receiver := range n.engines {
			p, q := sender.links.peers[to], receiver.links.peers[from]
			if from == to || p == nil || p.link == nil || p.err != nil || q != nil && q.err != nil {
				continue
			}
			sum, granted := books(p.out.CreditSender, "credit"), receiver.links.grant
			if nic := n.devices[to].nic; nic != nil {
				sum += nic.owes(from)
			}
			for _, pkt := range n.onWire(from, to) {
				switch pkt.Header.Kind {
				case wire.Eager, wire.EagerSync:
					sum += eager.Cost(len(pkt.Payload))
				case wire.RTS:
					sum += eager.Envelope
				case wire.Batch:
					for _, n := range batched(&pkt) {
						sum += eager.Cost(n)
					}
				}
			}
			for _, pkt := range n.onWire(to, from) {
				if pkt.Header.Kind == wire.Credit {
					sum += int64(pkt.Header.Len + pkt.Header.Addr + pkt.Header.Key)
				}
			}
			if q != nil {
				sum += books(q.in, "held") + books(q.in, "owed")
				for _, h := range q.control.items() {
					if h.Kind == wire.Credit {
						sum += int64(h.Len + h.Addr + h.Key)
					}
				}
				for t := range receiver.links.transfers.values() {
					if t.recv && t.peer == q {
						sum += eager.Envelope
					}
				}
				granted = books(q.in, "max")
			}
			if sum != granted {
				return fmt.Errorf("of the %d bytes that rank %d grants to rank %d, %d are accounted for", granted, to, from, sum)
			}
		}
	}
	return nil
}

// consistent checks one engine's own books.
func (e *Engine) consistent() error {
	if err := e.wait.check(&e.load); err != nil {
		return fmt.Errorf("rank %d: %w", e.cfg.Rank, err)
	}
	if err := e.links.worklist.check(e.links.peers); err != nil {
		return fmt.Errorf("rank %d: %w", e.cfg.Rank, err)
	}
	active := len(e.probers)
	for t := range e.links.transfers.values() {
		one := t.r.op == opLink
		if t.r.state != stActive || t.r.transfer != t || !one && (t.recv != (t.r.op != opSend) || t.one.reach != nil) {
			return fmt.Errorf("rank %d: a transfer's request is not active, or not its own", e.cfg.Rank)
		}
		due := t.one.reach != nil && t.operationDue()
		for k, there := range map[jobKind]bool{jobStream: !t.recv && t.snd.Streaming(),
			jobWrite: !t.recv && t.writeDue() || due && t.one.put, jobRead: t.recv && t.readDue() || due && !t.one.put,
			jobInbound: t.recv && t.rcv.Streaming()} {
			if t.jobs.has(k) != there {
				return fmt.Errorf("rank %d: a transfer is in the list of jobs of kind %d: %v, and should not", e.cfg.Rank, k, !there)
			}
		}
	}
	switch {
	case e.load.outstanding < active || e.load.detached < 0 || e.load.outstanding < e.load.detached:
		return fmt.Errorf("rank %d: %d outstanding, %d detached, %d probes", e.cfg.Rank, e.load.outstanding, e.load.detached, active)
	}
	var held int64
	for _, p := range e.links.peers {
		if p == nil {
			continue
		}
		held += books(p.in, "held")
		if n := len(e.links.wanting); slices.Contains(e.links.wanting, p) != (p.wants() && p.err == nil) {
			return fmt.Errorf("rank %d: rank %d wants something: %v, and is not among the %d that do",
				e.cfg.Rank, p.rank, p.wants(), n)
		}
		if credit := p.out.CreditSender; p.queue.len() > 0 && p.link != nil && p.err == nil && !p.stalled &&
			(p.queue.items()[0].transfer == nil || p.queue.items()[0].transfer.prep != preparing) &&
			!reflect.ValueOf(credit).FieldByName("asked").Bool() {
			return fmt.Errorf("rank %d: messages to rank %d wait, and not for room, and it has not been asked for "+
				"credit: %+v", e.cfg.Rank, p.rank, credit)
		}
		for i, r := range p.queue.items() {
			if r.state != stActive || !r.queued || r.peer != p {
				return fmt.Errorf("rank %d: place %d of the queue to rank %d is no queued request", e.cfg.Rank, i, p.rank)
			}
		}
	}
	if early := e.links.early; held+early != e.links.store.Bytes || early < 0 {
		return fmt.Errorf("rank %d: %d and %d bytes are held, the statistics say %d", e.cfg.Rank, held, early,
			e.links.store.Bytes)
	}
	return e.offloadConsistent()
}

// served checks that no receive waits for a message that its sender, which keeps to the rules, has no credit for. One
// that asks for credit and has some may send a message that is not the one.
func (e *Engine) served() error {
	for _, p := range e.links.peers {
		if p != nil && p.in.Wants() && p.err == nil && books(p.in, "held")+books(p.in, "owed") != 0 && e.links.awaits(p) {
			return fmt.Errorf("rank %d: a receive waits for what rank %d has no credit for: %+v", e.cfg.Rank, p.rank, p.in)
		}
	}
	return nil
}

func (n *testNet) check(t testing.TB) {
	t.Helper()
	for _, e := range n.engines { // some may still be connecting
		e.lock()
		defer e.unlock()
	}
	for _, what := range n.misuse {
		t.Error(what)
	}
	if err := n.accounts(); err != nil && !n.hostile {
		t.Error(err)
	}
	for _, e := range n.engines {
		if err := e.consistent(); err != nil {
			t.Error(err)
		}
		if err := e.served(); err != nil && !n.hostile {
			t.Error(err)
		}
	}
}
