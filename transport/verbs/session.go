//go:build verbs && linux && cgo

package verbs

import (
	"cmp"
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
// connects its queue pair when it has the other's hello, and says known; then the other proves its path (prove.go). The
// higher rank says ready when its path is proved. The lower rank decides: when its own path is proved too, it says
// ready and may send. The higher rank may send when it has that ready. So it does not matter which begins, nor whether
// both do, and the first message finds a receiver that is ready.
type session struct {
	d     *Device
	peer  int
	index uint32 // in table.all; part of every request's number
	queuePairs
	handshake
	proof *proof // nil: it is over. Guarded by Device.mu
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
	everOpen bool          // the state has been open, here or at the peer
	opened   chan struct{} // closed when the state is open or failed
}

// requests are the requests that the device has of a session. It belongs to the caller of Poll. Invariant: those from
// done up to next have a record each; at most most, and one more, that of postEmpty.
type requests struct {
	first      *record // of request done, and by record.next of those behind it; nil: there is none
	last       *record // of the last of them, if there is one
	most       int
	next       uint32 // number of the next request
	done       uint32 // all before are over
	unsignaled int    // sends since one that will be confirmed
	refused    bool   // something found no room, and Room is owed for it; not of a session that has failed
	doneThen   uint32 // done at the last look of lookAfterTails
	silent     uint32 // looks since it has changed
}

// ending is the end of a session. It belongs to the caller of Poll.
type ending struct {
	failed       bool      // nothing is posted any more
	why          error     // for Down
	downReported bool      // Down has been
	flushBy      time.Time // when a device that has not given the requests back is made to
	behind       int       // completions until what was in the queue at the failure is handed out: other peers may fill it
}

type state uint8

const (
	stateMade      state = iota // hello is said
	stateKnown                  // the peer's hello is here and the queue pair connected; known is said
	stateUndecided              // this rank has given up after its ready, and the lower rank is to say whether it has opened
	stateOpen                   // the paths are proved
	stateFailed
)

// record is one request that the device has. Its owner is the device, from post to completion.
type record struct {
	buffer int32   // of sendPool.send; negative: none
	rma    *rmaOp  // the operation that it is a part of; nil: a send
	next   *record // that of the session's next request
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
	table atomic.Pointer[table] // Poll reads it without mu

	// mu is taken when connections come and go, and held while the device makes and connects their queue pairs, which
	// takes milliseconds. Poll takes it only for a session that fails, so that the packets of others go on.
	mu       sync.Mutex
	sessions map[int]*session // guarded by mu

	notices  atomic.Bool // lost or parts is not empty, or goroutines have registered something
	noticeMu sync.Mutex  // guards what follows. It may be taken within mu, and no lock within it
	lost     []*session  // that have ended without Poll
	parts    []receivePart
}

// lose notes for Poll that a session has ended. mu is held.
func (p *peers) lose(s *session) {
	p.noticeMu.Lock()
	defer p.noticeMu.Unlock()
	p.lost = append(p.lost, s)
}

// noticed returns what there is for Poll.
func (p *peers) noticed() (lost []*session, parts []receivePart) {
	p.noticeMu.Lock()
	defer p.noticeMu.Unlock()
	p.notices.Store(false)
	lost, parts = p.lost, p.parts
	p.lost, p.parts = nil, nil
	return lost, parts
}

// sessionOf is the session with a peer; nil: the peer has no session. Poll, which has no mu, asks where a queue pair
// does not tell.
func (p *peers) sessionOf(peer int32) *session {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.sessions[int(peer)]
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
	s := d.attach(peer)
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
	switch {
	case s.state != stateFailed:
		return newLink(s), nil
	case errors.Is(s.err, transport.ErrPeerGone):
		return nil, fmt.Errorf("verbs: the queue pair with rank %d: %w", peer, s.err)
	case s.everOpen:
		return nil, fmt.Errorf("%w: verbs: the queue pair with rank %d: %w", transport.ErrPeerGone, peer, s.err)
	}
	return nil, fmt.Errorf("%w: verbs: the queue pair with rank %d: %w", transport.ErrUnavailable, peer, s.err)
}

// makeSession makes a session whose queue pair is not connected. mu is held.
func (d *Device) makeSession(peer int) (*session, error) {
	if d.dead.Load() {
		return nil, fmt.Errorf("the device %s has failed", d.at.device)
	}
	s := &session{d: d, peer: peer, handshake: handshake{opened: make(chan struct{})},
		queuePairs: queuePairs{psn: rand.Uint32() >> 8}}
	most, owner := depth, len(d.table.Load().all)+1 // table.owner finds the session by it
	if owner > cmp.Or(d.opt.deepQueues, deepQueues) {
		most = depthOfMany
	}
	var deep int
	var err error
	if s.qp, s.qpn, deep, s.inline, err = d.hca.makeQP(d.at.number, d.at.pkey.Index, owner,
		min(most+1, d.at.caps.maxRequests), inlineMax); err != nil {
		return nil, err
	}
	if d.tags.on() {
		if s.serve, s.serveQPN, err = d.hca.serveQP(d.at.number, d.at.pkey.Index, owner); err != nil {
			d.later.destroy(s.qp)
			return nil, err
		}
	}
	s.most = min(most, deep-1)
	d.table.Store(d.table.Load().with(s))
	return s, nil
}

// attach returns the session with a peer, and says hello if it is new. mu is not held: where no queue pair can be made,
// this waits for the ends of those that are being destroyed, and tries again.
func (d *Device) attach(peer int) *session {
	d.mu.Lock()
	defer d.mu.Unlock()
	s, err := d.tryAttach(peer)
	if err == nil {
		return s
	}
	d.mu.Unlock()
	room := d.later.settle()
	d.mu.Lock()
	if room || d.sessions[peer] != nil {
		s, err = d.tryAttach(peer)
	}
	if err != nil {
		return d.unmade(peer, err)
	}
	return s
}

// tryAttach is attach where a queue pair can be made. mu is held.
func (d *Device) tryAttach(peer int) (*session, error) {
	if s := d.sessions[peer]; s != nil {
		return s, nil
	}
	p, err := d.newProof()
	if err != nil {
		return nil, err
	}
	s, err := d.makeSession(peer)
	if err != nil {
		d.later.destroy(p.probe)
		return nil, err
	}
	s.proof, d.sessions[peer] = p, s
	h := hello{layer: d.at.layer, mtu: d.at.mtu, reads: uint8(d.at.caps.serves), lid: d.at.lid, gid: d.at.gid,
		qpn: s.qpn, psn: s.psn, slot: slotSize,
		most: uint32(min(d.at.maxLength, 1<<31)), pkey: d.at.pkey.Value, probe: p.qpn,
		sink: addressOf(d.prover.sink.mem), sinkKey: d.prover.sink.region.rkey}
	if d.tags.on() {
		h.serves, h.serveQPN = servesTags, s.serveQPN
	}
	if d.at.global {
		h.serves |= needsGRH
	}
	d.control.send(peer, tagHello, h.encode())
	return s, nil
}

// unmade is the session with a peer for which this rank can make no queue pair. It stays so, also when there is room
// again: this rank may reach the peer by another transport then, and the peer must use the same one. mu is held.
func (d *Device) unmade(peer int, err error) *session {
	s := &session{d: d, peer: peer, handshake: handshake{state: stateFailed, opened: make(chan struct{}),
		err: fmt.Errorf("making it here: %w", err)}}
	s.failed, s.downReported, s.why = true, true, s.err
	d.sessions[peer] = s
	s.unopened()
	return s
}

// onHello takes a peer's hello.
func (d *Device) onHello(peer int, payload []byte) {
	s := d.attach(peer)
	d.mu.Lock()
	defer d.mu.Unlock()
	if s.state == stateFailed { // which the peer did not have to hear of while it had no session
		d.control.send(peer, tagBroken, []byte(s.err.Error()))
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
		timeout: ackTimeoutFor(d.opt.patience), retries: ackRetries, level: uint8(d.opt.ServiceLevel)}
	if d.at.layer == layerEthernet {
		r.class = uint8(d.opt.TrafficClass)
	}
	s.tagged = h.serves&servesTags != 0
	s.deviceMatches = s.tagged && d.tags.on()
	s.theirMost = h.most
	err := s.join(&h, &r)
	if err == nil {
		err = d.joinProof(s, &h, r)
	}
	if err != nil {
		d.abort(s, err, true)
		return
	}
	s.state = stateKnown
	d.control.send(peer, tagKnown, nil)
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

// abort ends a session; notifyPeer: the peer does not know. mu is held.
func (d *Device) abort(s *session, err error, notifyPeer bool) {
	if s.state == stateFailed || s.state == stateUndecided {
		return
	}
	if notifyPeer && s.peer != d.opt.Rank {
		d.control.send(s.peer, tagBroken, []byte(err.Error()))
	}
	undecided, open := notifyPeer && s.hasVoted(), s.state == stateOpen
	d.dropProof(s)
	if s.state, s.err = stateFailed, err; undecided {
		s.state = stateUndecided
		return
	}
	if !open {
		s.unopened()
	}
	d.lose(s)
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

// onBroken takes a peer's broken. A session that was not open has carried nothing, and another transport may.
func (d *Device) onBroken(peer int, why []byte) {
	d.mu.Lock()
	defer d.mu.Unlock()
	s := d.sessions[peer]
	if s == nil {
		return
	}
	err := fmt.Errorf("its queue pair for this rank: %.300q", why)
	switch {
	case s.state == stateUndecided:
		d.decided(s, false)
		return
	case s.everOpen:
		err = fmt.Errorf("%w: %w", transport.ErrPeerGone, err)
	case s.state != stateFailed && peer > d.opt.Rank: // it may wait to hear that this rank has not opened the session
		d.control.send(peer, tagBroken, []byte(err.Error()))
	}
	d.abort(s, err, false)
}

// onGone is called when a peer's control connection has ended, or its queue pair.
func (d *Device) onGone(peer int, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch s := d.sessions[peer]; {
	case s == nil:
	case s.state == stateUndecided:
		d.decided(s, true)
	default:
		d.abort(s, err, false)
	}
}

// unopened ends the wait for a session that has failed. mu is held.
func (s *session) unopened() {
	close(s.opened)
	if !s.everOpen && !errors.Is(s.err, transport.ErrPeerGone) {
		s.d.opt.Log("verbs does not connect this rank with a peer", "peer", s.peer, "reason", s.err)
	}
}

// hasVoted reports whether this rank has left it to the peer whether the session opens. mu is held.
func (s *session) hasVoted() bool {
	return s.state == stateKnown && s.proof.answered && s.peer < s.d.opt.Rank
}

// decided ends a session that this rank has given up; open: the peer has opened it, or may have. mu is held.
func (d *Device) decided(s *session, open bool) {
	s.state, s.everOpen = stateFailed, open
	s.unopened()
	d.lose(s)
	d.tellNotice()
}
