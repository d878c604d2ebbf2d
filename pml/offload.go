package pml

import (
	"fmt"
	"math"
	"strings"

	"github.com/gorun-mpi/mpi/eager"
	"github.com/gorun-mpi/mpi/internal/wire"
	"github.com/gorun-mpi/mpi/transport"
)

// Receives that the device matches (transport.Offload). The table holds every posted receive, also those that the
// device has: it is the shadow of the device's list. A receive's life here:
//
//	1. post: no message waits for it, so it stands in the table; handDown: the device gets it too, or it is counted as
//	   one that software alone must match
//	2. OffloadMatched: off the table; OffloadDone: complete, as progress.go would have done it, or to transfer.go
//	3. or a message that the device has not matched is found to be its: packet takes it over
//	4. or it is cancelled, which the device decides (OffloadBack)
//	5. or its peer fails, or its communicator is freed: fail. It ends when the device has let go of the buffer
//
// What may be handed down: of any two receives that could match the same message, the younger only if the device has
// the older. Then whatever the device matches is what the table would have said: the older ones that match are in front
// of it in the device's list, and what software alone matches is younger. It is decided conservatively and at once:
//
//	exact                                  if no wildcard that could match such a message, and no receive of the same
//	                                       context, source and tag, is with software
//	any tag, of a source                   if no receive at all that names this source or none is with software
//	any source                             never: this rank and peers of other transports send too
//
// Rejected: handing the rest down when what was in its way has gone. It would keep a list for each reason, and receives
// are short-lived: the next one goes down.
//
// A rank has one such device.

// offloadState says what may match a posted receive.
type offloadState uint8

const (
	offloadNone offloadState = iota // it is not posted, or its source sends around the device: it is not counted
	inSoftware                      // software; in the table, counted in its peer's soft
	// The device, and software for what the device leaves. It is in the table, and in the slot of its cookie.
	inDevice
)

// offloadRef is what a request knows of that.
type offloadRef struct {
	state  offloadState
	cookie uint64 // of its slot, while state is inDevice
}

// Fallback is why a receive was not handed down to a device that matches tags.
type Fallback uint8

// Reasons, in the order in which they are looked at.
const (
	FallbackSource       Fallback = iota // from any source
	FallbackPeer                         // the peer's messages come another way
	FallbackShort                        // the buffer is shorter than what the device could put there
	FallbackContext                      // context or rank is too large for the device's tags
	FallbackWildcard                     // an older receive with a wildcard is with software
	FallbackOlder                        // an older receive for the same message is with software
	FallbackBuffer                       // the device has a receive with this buffer already
	FallbackFull                         // the device's list is full
	FallbackUnregistered                 // the device cannot reach the buffer
	fallbackEnd
	handedDown
)

var fallbackNames = [fallbackEnd]string{"any-source", "other-peer", "short-buffer", "context", "wildcard", "older",
	"same-buffer", "list-full", "unregistered"}

func (f Fallback) String() string {
	if f >= fallbackEnd {
		return "none"
	}
	return fallbackNames[f]
}

// Fallbacks are how many receives were not handed down, by reason.
type Fallbacks [fallbackEnd]uint64

// String names the reasons that there were.
func (f Fallbacks) String() string {
	var parts []string
	for why, n := range f {
		if n != 0 {
			parts = append(parts, fmt.Sprintf("%v:%d", Fallback(why), n))
		}
	}
	return "[" + strings.Join(parts, " ") + "]"
}

// offload is the device and what it has. Guarded by the engine's lock.
type offload struct {
	l     *linkPath
	dev   *transport.Offload // nil: there is none, and nothing else here is used
	tags  int                // receives that it is given at most
	min   int                // bytes of the shortest buffer that it is given
	peers int                // whose receives may be handed down
	// dealing: packet has a packet under way.
	dealing bool

	slots []slot
	spare int32   // a chain of those that are free, by next; -1: none
	byBuf []int32 // heads of chains of those that are in use, by the hash of their buffers; as many as a power of two
	uses  uint64  // cookies given out
}

// peerTags is what an offload knows of a peer.
type peerTags struct {
	// offload: its messages come through the device that could match them, or might, as there is no link yet. able: and
	// the device does.
	offload *offload
	able    bool
	// Receives that name the peer, are posted and not handed down: soft, those for any tag among them: softWild; counted
	// if able.
	soft, softWild int32
}

// slot is one receive that the device has, from Post to OffloadDone or OffloadBack. Its buffer is pinned by the
// device until then, so nothing else has its address.
type slot struct {
	cookie  uint64
	r       *Request // nil: no request has that buffer any more
	p       *peer    // nil ⇔ free
	failed  error    // what r ends with when the device has let go of the buffer; nil: with its message
	buf     uintptr
	next    int32
	asked   bool // OffloadCancel has been said
	matched bool // and so r, if any, is off the table
}

// A cookie is how many have been given out, and the number of the slot in the lowest bits. None is used twice.
const (
	slotBits = 20
	maxSlots = 1 << slotBits
)

// init takes note of the device that matches tags, if there is one.
func (o *offload) init(dev *transport.Offload) {
	if dev == nil {
		return
	}
	o.dev, o.spare = dev, -1
	o.tags = min(dev.Tags, maxSlots)
	o.min = max(dev.Min, 1) // an empty buffer has no address of its own
	n := 1
	for n < o.tags {
		n *= 2
	}
	o.byBuf = make([]int32, n)
	for i := range o.byBuf {
		o.byBuf[i] = -1
	}
}

// chain is where the slots of a buffer are.
func (o *offload) chain(buf uintptr) *int32 {
	return &o.byBuf[uint64(buf)*0x9e3779b97f4a7c15>>32&uint64(len(o.byBuf)-1)]
}

// holds reports whether the device may write to a buffer that begins there.
func (o *offload) holds(buf uintptr) bool {
	for i := *o.chain(buf); i >= 0; i = o.slots[i].next {
		if o.slots[i].buf == buf {
			return true
		}
	}
	return false
}

// take finds a slot for a receive; nil: the device's list is full.
func (o *offload) take(p *peer, r *Request, buf uintptr) *slot {
	i := o.spare
	switch {
	case i >= 0:
		o.spare = o.slots[i].next
	case len(o.slots) < o.tags:
		i = int32(len(o.slots))
		o.slots = append(o.slots, slot{})
	default:
		return nil
	}
	o.uses++
	head := o.chain(buf)
	s := &o.slots[i]
	*s = slot{cookie: o.uses<<slotBits | uint64(i), r: r, p: p, buf: buf, next: *head}
	*head = i
	return s
}

// free is called when the device has let go of the buffer.
func (o *offload) free(s *slot) {
	i := int32(s.cookie & (maxSlots - 1))
	at := o.chain(s.buf)
	for *at != i {
		at = &o.slots[*at].next
	}
	*at = s.next
	s.r, s.p, s.failed, s.next = nil, nil, nil, o.spare
	o.spare = i
}

// find returns the slot of a cookie, or nil.
func (o *offload) find(cookie uint64) *slot {
	if i := cookie & (maxSlots - 1); i < uint64(len(o.slots)) {
		if s := &o.slots[i]; s.p != nil && s.cookie == cookie {
			return s
		}
	}
	return nil
}

// askBack asks the device for a receive, once.
func (o *offload) askBack(s *slot) {
	if !s.asked {
		s.asked = true
		o.dev.Cancel(s.cookie)
	}
}

// asking reports whether a receive has been asked back and the device has not let go of it.
func (o *offload) asking() bool {
	for i := range o.slots {
		if s := &o.slots[i]; s.p != nil && s.asked {
			return true
		}
	}
	return false
}

// busy reports whether the device has something under way that goes on without a call: it has matched a receive that
// has not ended, or a receive has been asked back.
func (o *offload) busy() bool {
	for i := range o.slots {
		if s := &o.slots[i]; s.p != nil && (s.asked || s.matched) {
			return true
		}
	}
	return false
}

// onConnected finds out whether a device can match what p sends.
func (o *offload) onConnected(p *peer, link transport.Link) {
	if o.dev == nil || !link.Caps().Offload {
		p.tags.offload = nil
		return
	}
	cfg := &o.l.e.cfg
	able := cfg.Offload != OffloadOff && o.tags > 0
	if cfg.Debug != nil {
		by := "device"
		if !able {
			by = "software"
		}
		cfg.Debug("device matches tags", "peer", p.rank, "matching", by, "receives-max", o.tags, "buffer-min", o.min)
	}
	if !able {
		return
	}
	p.tags.able = true
	o.peers++
	o.l.needsCheck++
	for _, r := range o.l.table.Naming(p.rank) {
		o.handDown(p, r.Owner.(*Request))
	}
}

func (o *offload) fallBack(why Fallback) {
	if o.peers != 0 {
		o.l.e.stats.OffloadFallbacks[why]++
	}
}

// handDown gives a receive that names p to the device too, if that is allowed. All posted receives that name p are
// older and have been through this, or are younger and will be.
func (o *offload) handDown(p *peer, r *Request) {
	if why := o.tryHandDown(p, r); why != handedDown {
		o.fallBack(why)
		o.keepInSoftware(p, r)
		return
	}
	r.offload.state = inDevice
	o.l.e.stats.OffloadPosted++
}

// keepInSoftware leaves r, which names p, to software alone.
func (o *offload) keepInSoftware(p *peer, r *Request) {
	r.offload.state = inSoftware
	p.tags.soft++
	if r.recv.Tag == AnyTag {
		p.tags.softWild++
	}
}

func (o *offload) tryHandDown(p *peer, r *Request) Fallback {
	tag, mask := r.recv.Tag, transport.MaskExact
	if tag == AnyTag {
		tag, mask = 0, transport.MaskAnyTag
	}
	packed, fits := transport.PackTag(r.recv.Ctx, r.recv.Source, tag)
	switch {
	case r.buf.Len < o.min || r.device() != nil:
		return FallbackShort
	case !fits:
		return FallbackContext
	case o.l.table.FromAny() != 0 || p.tags.softWild != 0:
		return FallbackWildcard
	case r.recv.Tag == AnyTag && p.tags.soft != 0 || !o.olderDown(r):
		return FallbackOlder
	}
	buf := uintptr(r.buf.Addr)
	if o.holds(buf) {
		return FallbackBuffer
	}
	s := o.take(p, r, buf)
	if s == nil {
		return FallbackFull
	}
	switch o.dev.Post(packed, mask, r.buf, s.cookie) {
	case transport.PostedDown:
		r.offload.cookie = s.cookie
		return handedDown
	case transport.PostedFull:
		o.free(s)
		return FallbackFull
	}
	o.free(s)
	return FallbackUnregistered
}

// olderDown reports whether the device has all older receives with the same envelope. It is enough to look at the
// youngest of them: it went down only after the others.
func (o *offload) olderDown(r *Request) bool {
	older := o.l.table.Older(&r.recv)
	return older == nil || older.Owner.(*Request).offload.state == inDevice
}

// withdraw is called when r is taken off the table, or just has been, and not because the device has matched it. If the
// device has it, a message has come that is r's and that the device has left to software: then its entry is dead until
// Seen, and gone by then. So r may complete at once.
func (o *offload) withdraw(r *Request) {
	switch r.offload.state {
	case inSoftware:
		p := o.l.peers[r.recv.Source]
		p.tags.soft--
		if r.recv.Tag == AnyTag {
			p.tags.softWild--
		}
	case inDevice:
		s := o.find(r.offload.cookie)
		s.r = nil
		o.askBack(s)
		o.l.e.stats.OffloadTakenBack++
	}
	r.offload.state = offloadNone
}

// fail is called when r, which the device has, is off the table and fails with err.
func (o *offload) fail(r *Request, err error) {
	s := o.find(r.offload.cookie)
	s.failed = err
	o.askBack(s)
	o.l.e.stats.OffloadTakenBack++
}

// failMatched lets what the device has matched with messages of p fail.
func (o *offload) failMatched(p *peer, err error) {
	if !p.tags.able {
		return
	}
	for i := range o.slots {
		if s := &o.slots[i]; s.p == p && s.r != nil && s.failed == nil {
			s.failed = err
		}
	}
}

// finish ends what is left: the devices are closed.
func (o *offload) finish() {
	for i := range o.slots {
		if s := &o.slots[i]; s.r != nil {
			o.l.e.complete(s.r, s.failed)
			s.r = nil
		}
	}
}

// packet handles what comes from a peer whose messages come through such a device, or might.
func (o *offload) packet(p *peer, pkt *transport.Packet) {
	if p.tags.able && p.err == nil {
		o.shadow(p, pkt)
	}
	unmatched := pkt.Event == transport.Unmatched
	o.dealing = true
	o.l.event(pkt)
	o.dealing = false
	if unmatched {
		o.dev.Seen()
	}
}

// shadow takes the receive over that a message will find, if there is one: this message the device has not matched.
func (o *offload) shadow(p *peer, pkt *transport.Packet) {
	h := &pkt.Header
	if h.Kind != wire.Eager && h.Kind != wire.EagerSync && h.Kind != wire.RTS {
		return
	}
	m := o.l.table.Peek(h.Ctx, p.rank, h.Tag)
	if m == nil {
		return
	}
	r := m.Owner.(*Request)
	if r.offload.state == inDevice && pkt.Event != transport.Unmatched {
		// Only an unmatched one keeps the device from matching the receive with another message at this moment.
		p.breaks("it sent a message around the device that matches them")
		return
	}
	o.withdraw(r)
	o.l.e.stats.SoftwareMatches++
}

// event is called when the device reports about a receive.
func (o *offload) event(pkt *transport.Packet) {
	s := o.find(pkt.Cookie)
	if s == nil {
		return
	}
	switch pkt.Event {
	case transport.OffloadMatched:
		o.matched(s, pkt.Header.Tag)
	case transport.OffloadDone:
		o.done(s, pkt)
	case transport.OffloadBack:
		o.back(s)
	}
}

// matched takes the receive off the table at once, or the next message would find it there.
func (o *offload) matched(s *slot, tag int32) {
	if s.matched {
		return
	}
	s.matched = true
	if r := s.r; r != nil {
		o.l.table.Cancel(&r.recv)
		r.offload.state = offloadNone
		r.status = Status{Source: s.p.rank, Tag: tag}
		o.l.e.stats.OffloadMatches++
		o.l.e.stats.MatchedOnArrival++
	}
}

// done is called when the device is done with a message and a buffer. It may be the first that is heard of the match.
func (o *offload) done(s *slot, pkt *transport.Packet) {
	h, p, r, failed := &pkt.Header, s.p, s.r, s.failed
	if pkt.Err == nil {
		o.matched(s, h.Tag)
	} else if r != nil {
		o.l.table.Cancel(&r.recv)
		r.offload.state = offloadNone
	}
	o.free(s)
	if failed != nil && r != nil {
		r.status.Bytes = 0
		o.l.e.complete(r, failed)
		r = nil
	}
	switch {
	case pkt.Err != nil:
		if r != nil {
			o.l.e.complete(r, &PeerError{int(p.rank), pkt.Err})
		}
	case h.Len > math.MaxInt64:
		p.breaks("its message is longer than any memory")
		if r != nil {
			o.l.e.complete(r, p.err)
		}
	case r == nil:
		o.discardMatched(p, h)
	case h.Kind == wire.RTS:
		o.l.transfers.receive(r, p, h)
	default: // Eager, EagerSync or FIN: the payload is there
		size := int(h.Len)
		r.status.Bytes = int64(min(size, r.buf.Len))
		o.l.e.complete(r, r.truncated(int64(size)))
		o.acknowledge(p, h)
	}
}

// acknowledge tells the sender of a message that has been matched what it waits for, and gives its credit back.
func (o *offload) acknowledge(p *peer, h *wire.Header) {
	cost := int64(eager.Envelope)
	if h.Kind != wire.FIN {
		cost = eager.Cost(int(h.Len))
	}
	if h.Kind == wire.EagerSync {
		p.sendControl(wire.Header{Kind: wire.Matched, ID: h.ID})
	}
	p.returnCredit(cost)
}

// discardMatched is called when the device has matched a message with a receive that has been given up meanwhile. The
// message is lost, as an unexpected one of that communicator is (discard).
func (o *offload) discardMatched(p *peer, h *wire.Header) {
	if h.Kind == wire.RTS {
		p.sendControl(wire.Header{Kind: wire.FIN, ID: h.ID})
		p.returnCredit(eager.Envelope)
		return
	}
	o.acknowledge(p, h)
}

// back is called when the device has taken a receive off its list.
func (o *offload) back(s *slot) {
	r, p, failed := s.r, s.p, s.failed
	if s.matched {
		return // a device's mistake: what it has matched it must finish
	}
	o.free(s)
	switch {
	case r == nil:
		return
	case failed != nil:
		r.offload.state = offloadNone
		o.l.e.complete(r, failed)
		return
	case !r.cancelling:
		o.refused(p, r)
		return
	}
	o.l.e.stats.OffloadTakenBack++
	r.offload.state = offloadNone
	o.l.table.Cancel(&r.recv)
	o.l.e.endCancelled(r, r.cancelErr)
}

// refused is called when the device has not taken a receive after all, though it had said so. Software has it from now
// on, unless that comes too late: a younger receive that the device has may get, or have got, a message that is this
// one's.
func (o *offload) refused(p *peer, r *Request) {
	o.keepInSoftware(p, r)
	younger := false
	for _, m := range o.l.table.Naming(p.rank) {
		other := m.Owner.(*Request)
		if younger && other.offload.state == inDevice && m.Ctx == r.recv.Ctx &&
			(m.Tag == r.recv.Tag || m.Tag == AnyTag || r.recv.Tag == AnyTag) {
			p.breaks("the device has lost a receive that others depend on")
			return
		}
		younger = younger || other == r
	}
}

// cancel has the device decide whether r is cancelled or completes.
func (o *offload) cancel(r *Request, why error) {
	if r.cancelling {
		return
	}
	r.cancelling, r.cancelErr, r.extra = true, why, true
	o.askBack(o.find(r.offload.cookie))
}
