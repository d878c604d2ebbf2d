//go:build verbs && linux && cgo

package verbs

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gorun-mpi/mpi/internal/topology"
	"github.com/gorun-mpi/mpi/transport"
)

// session is the connection with one peer.
//
// The rank that connects first makes a queue pair, and the other when it gets the hello. Each side says hello once,
// connects its queue pair when it has the other's hello, and says ready; only then may the other send. So it does not
// matter which begins, nor whether both do, and the first message finds a receiver that is ready.
type session struct {
	d     *Device
	peer  int
	index uint32 // in table.all; part of every request's number
	queuePairs
	handshake
	requests
	ending

	tagged        bool   // what is sent begins with a tag-matching header
	deviceMatches bool   // and the peer's messages may be matched by this rank's device too
	theirMost     uint32 // bytes of one message that the peer's device moves

	// These belong to the caller of Poll.
	heard    bool // a packet of it has been handed out
	incoming int  // entries of the list that its messages were matched with and whose data are to come
}

// queuePairs are what the device has of a session. They do not change until they are destroyed.
type queuePairs struct {
	qp     queuePair
	qpn    uint32
	psn    uint32 // of the first packet
	inline int    // bytes that a send may carry with the request
	// With tag matching the device answers by a queue pair of its own: our qp is connected with the peer's serve, and
	// our serve with the peer's qp.
	serve    queuePair
	serveQPN uint32
}

// handshake is how far the two sides are. Guarded by Device.mu.
type handshake struct {
	state    state
	err      error         // why it failed
	everOpen bool          // the state has been open
	opened   chan struct{} // closed when the state is open or failed
}

// requests are the requests that the device has of a session. It belongs to the caller of Poll. Invariant: those from
// done up to next are in sq, by number modulo its length, 2^n; at most most, and one more, that of confirm.
type requests struct {
	sq         []record
	most       int
	next       uint32 // number of the next request
	done       uint32 // all before are over
	unsignaled int    // sends since one that will be confirmed
	refused    bool   // something found no room, and Room is owed for it; not of a session that has failed
}

// ending is the end of a session. It belongs to the caller of Poll.
type ending struct {
	failed       bool      // nothing is posted any more
	why          error     // for Down
	downReported bool      // Down has been
	flushBy      time.Time // when a device that has not given the requests back is made to
}

type state uint8

const (
	stateMade  state = iota // hello is said
	stateKnown              // the peer's hello is here and the queue pair connected; ready is said
	stateOpen               // the peer is ready
	stateFailed
)

// record is one request that the device has. Its owner is the device, from post to completion.
type record struct {
	buffer int32  // of sendPool.send; negative: none
	rma    *rmaOp // the operation that it is a part of; nil: a send
}

// table is what Poll finds sessions by.
type table struct {
	all   []*session // by index
	byQPN []*session // open addressing; the length is a power of two
}

func (t *table) find(qpn uint32) *session {
	mask := uint32(len(t.byQPN) - 1)
	if len(t.byQPN) == 0 {
		return nil
	}
	for i := qpn * 0x9e3779b1 >> 7 & mask; ; i = (i + 1) & mask {
		s := t.byQPN[i]
		if s == nil || s.qpn == qpn || s.serve != 0 && s.serveQPN == qpn {
			return s
		}
	}
}

// with returns a table that has s too.
func (t *table) with(s *session) *table {
	s.index = uint32(len(t.all))
	n := &table{all: append(append(make([]*session, 0, len(t.all)+1), t.all...), s)}
	size := 8
	for size < 4*len(n.all) {
		size *= 2
	}
	n.byQPN = make([]*session, size)
	mask := uint32(size - 1)
	for _, s := range n.all {
		n.enter(s, s.qpn, mask)
		if s.serve != 0 {
			n.enter(s, s.serveQPN, mask)
		}
	}
	return n
}

func (t *table) enter(s *session, qpn, mask uint32) {
	i := qpn * 0x9e3779b1 >> 7 & mask
	for t.byQPN[i] != nil {
		i = (i + 1) & mask
	}
	t.byQPN[i] = s
}

// destroy takes the queue pairs from the device; it has no request of theirs afterwards.
func (q *queuePairs) destroy() {
	if q.qp != 0 {
		q.qp.destroy()
	}
	if q.serve != 0 {
		q.serve.destroy()
	}
	q.qp, q.serve = 0, 0
}

// peers are the sessions of a device.
type peers struct {
	table   atomic.Pointer[table] // replaced and never edited: Poll reads it without mu
	notices atomic.Bool           // lost is not empty, or goroutines have registered something

	mu       sync.Mutex // guards what follows; taken when connections come and go
	sessions map[int]*session
	lost     []*session // that have ended without Poll, which notices tells it
}

func (p *peers) sessionOf(peer int32) *session {
	for _, s := range p.table.Load().all {
		if s.peer == int(peer) {
			return s
		}
	}
	return nil
}

// Connect is transport.Device's.
func (d *Device) Connect(ctx context.Context, peer int, address []byte) (transport.Link, error) {
	layer, control, err := decodeAddress(address)
	switch {
	case err != nil:
		return nil, fmt.Errorf("%w: verbs: the address of rank %d: %w", transport.ErrUnavailable, peer, err)
	case layer != d.at.layer:
		return nil, fmt.Errorf("%w: verbs: rank %d is on %s and this rank on %s", transport.ErrUnavailable, peer,
			nameOf(layerNames, layer), nameOf(layerNames, d.at.layer))
	case d.closed.Load():
		return nil, fmt.Errorf("%w: verbs: the device is closed", transport.ErrUnavailable)
	}
	if _, err := d.control.tcp.Connect(ctx, peer, control); err != nil {
		return nil, fmt.Errorf("verbs: the control connection with rank %d: %w", peer, err)
	}
	d.mu.Lock()
	s, err := d.attach(peer)
	d.mu.Unlock()
	if err != nil {
		return nil, fmt.Errorf("%w: verbs: a queue pair for rank %d: %w", transport.ErrUnavailable, peer, err)
	}
	select {
	case <-s.opened:
	case <-ctx.Done():
		d.giveUp(s, errors.New("connecting took too long"))
		return nil, fmt.Errorf("%w: verbs: rank %d has the control connection and did not answer with its queue pair: %w",
			transport.ErrTimeout, peer, ctx.Err())
	case <-d.ctx.Done():
		return nil, fmt.Errorf("%w: verbs: the device is closed", transport.ErrUnavailable)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if s.state == stateFailed {
		return nil, fmt.Errorf("verbs: the queue pair with rank %d: %w", peer, s.err)
	}
	return newLink(s), nil
}

// makeSession makes a session whose queue pair is not connected. mu is held.
func (d *Device) makeSession(peer int) (*session, error) {
	if d.dead.Load() {
		return nil, fmt.Errorf("the device %s has failed", d.at.device)
	}
	s := &session{d: d, peer: peer, handshake: handshake{opened: make(chan struct{})},
		queuePairs: queuePairs{psn: rand.Uint32() >> 8}}
	var deep int
	var err error
	if s.qp, s.qpn, deep, s.inline, err = d.hca.makeQP(d.at.number, d.at.pkey.Index,
		min(depth+1, d.at.caps.maxRequests), inlineMax); err != nil {
		return nil, err
	}
	if d.tags.on() {
		if s.serve, s.serveQPN, err = d.hca.serveQP(d.at.number, d.at.pkey.Index); err != nil {
			s.destroy()
			return nil, err
		}
	}
	s.sq, s.most = make([]record, depth), min(depth, deep-1)
	d.table.Store(d.table.Load().with(s))
	return s, nil
}

// attach returns the session with a peer, and says hello if it is new. mu is held.
func (d *Device) attach(peer int) (*session, error) {
	if s := d.sessions[peer]; s != nil {
		return s, nil
	}
	s, err := d.makeSession(peer)
	if err != nil {
		return nil, err
	}
	d.sessions[peer] = s
	h := hello{layer: d.at.layer, mtu: d.at.mtu, reads: uint8(d.at.caps.serves), lid: d.at.lid, gid: d.at.gid,
		qpn: s.qpn, psn: s.psn, slot: slotSize,
		most: uint32(min(d.at.maxLength, 1<<31)), pkey: d.at.pkey.Value}
	if d.tags.on() {
		h.serves, h.serveQPN = servesTags, s.serveQPN
	}
	if d.at.global {
		h.serves |= needsGRH
	}
	d.control.send(peer, tagHello, h.encode())
	return s, nil
}

// onHello takes a peer's hello.
func (d *Device) onHello(peer int, payload []byte) {
	d.mu.Lock()
	defer d.mu.Unlock()
	s, err := d.attach(peer)
	if err != nil {
		d.control.send(peer, tagBroken, []byte(err.Error()))
		return
	}
	var h hello
	if err := h.decode(payload); err != nil {
		d.abort(s, err, true)
		return
	}
	if s.state != stateMade {
		return // it says so once
	}
	if h.layer != d.at.layer || h.slot != slotSize {
		d.abort(s, fmt.Errorf("rank %d has link layer %d and buffers of %d bytes, this rank %d and %d", peer, h.layer,
			h.slot, d.at.layer, slotSize), true)
		return
	}
	if peerKey := (topology.PKey{Value: h.pkey}); !d.at.pkey.Reaches(peerKey) {
		d.abort(s, fmt.Errorf("rank %d is in partition %s, this rank in %s: between them the fabric passes nothing"+
			" (GORUN_VERBS_PKEY chooses one that both are in, at least one of them as a full member)",
			peer, peerKey, d.at.pkey), true)
		return
	}
	r := remote{gid: h.gid, qpn: h.qpn, psn: h.psn, lid: h.lid, mtu: min(h.mtu, d.at.mtu),
		rdAtom: uint8(min(d.at.caps.reads, max(1, int(h.reads)))), rdServe: uint8(d.at.caps.serves),
		timeout: ackTimeout, retries: ackRetries, level: uint8(d.opt.ServiceLevel)}
	if d.at.layer == layerEthernet {
		r.class = uint8(d.opt.TrafficClass)
	}
	s.tagged = h.serves&servesTags != 0
	s.deviceMatches = s.tagged && d.tags.on()
	s.theirMost = h.most
	if err := s.join(&h, &r); err != nil {
		d.abort(s, err, true)
		return
	}
	s.state = stateKnown
	d.control.send(peer, tagReady, nil)
}

// join connects the queue pairs.
func (s *session) join(h *hello, r *remote) error {
	d := s.d
	if s.deviceMatches {
		r.qpn = h.serveQPN
	}
	global := d.at.globalTo(h)
	if err := d.hca.connectQP(s.qp, d.at.number, d.at.gidIndex, global, r, s.psn); err != nil || !s.deviceMatches {
		return err
	}
	r.qpn = h.qpn
	return d.hca.connectQP(s.serve, d.at.number, d.at.gidIndex, global, r, s.psn)
}

// globalTo reports whether packets to a peer carry the GIDs: where the port of one of the two needs them, and between
// subnets, whose LIDs do not tell their ports apart.
func (p *port) globalTo(h *hello) bool {
	known := p.gid != [16]byte{} && h.gid != [16]byte{}
	return p.global || h.serves&needsGRH != 0 && known || known && subnet(p.gid) != subnet(h.gid)
}

// ackTimeout is how long the device waits before it sends again: 4.096 µs × 2^18 = 1.07 s, as UCX; and ackRetries how
// often. So a link may be down for 5 s, as tcp's may. A packet that is lost from among others is asked for by the
// receiver at once, without this. The number may not be 7: soft-RoCE goes on for ever then.
const (
	ackTimeout = 18
	ackRetries = 6
)

// onReady takes a peer's ready.
func (d *Device) onReady(peer int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if s := d.sessions[peer]; s != nil && s.state == stateKnown {
		s.state, s.everOpen = stateOpen, true
		close(s.opened)
	}
}

// abort ends a session; tell: the peer does not know. mu is held.
func (d *Device) abort(s *session, err error, notifyPeer bool) {
	if s.state == stateFailed {
		return
	}
	if notifyPeer && s.peer != d.opt.Rank {
		d.control.send(s.peer, tagBroken, []byte(err.Error()))
	}
	if s.state != stateOpen {
		close(s.opened)
	}
	s.state, s.err = stateFailed, err
	d.lost = append(d.lost, s)
	d.tellNotice()
}

// tellNotice has Poll look at what a goroutine has done.
func (d *Device) tellNotice() {
	d.notices.Store(true)
	d.wakeSleepers()
}

func (d *Device) giveUp(s *session, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if s.state != stateOpen {
		d.abort(s, err, true)
	}
}

// onGone is called when a peer's control connection has ended, or its queue pair.
func (d *Device) onGone(peer int, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if s := d.sessions[peer]; s != nil {
		d.abort(s, err, false)
	}
}
