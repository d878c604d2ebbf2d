//go:build verbs && linux && cgo

package verbs

import (
	"errors"
	"fmt"

	"github.com/gorun-mpi/mpi/internal/wire"
	"github.com/gorun-mpi/mpi/transport"
)

// link sends to one peer.
type link struct {
	s    *session
	caps transport.Caps
}

// newLink makes the link of a session that is open. A READ is asked for whole: advance cuts and pipelines it.
func newLink(s *session) *link {
	l, at := &link{s: s}, &s.d.at
	l.caps = transport.Caps{EagerMax: eagerMax, FragMax: eagerMax, Hosted: at.hosted, Cut: l.cut,
		RMA: &transport.RMA{Register: l.register, Prepare: l.prepare, Deregister: l.deregister, Revoke: l.revoke,
			Get:     l.get,
			Put:     l.put,
			PutNote: l.putNote, Max: 1 << 62, Coherent: at.caps.coherent,
			Devices: &s.d.devices.facts, GetDevice: l.getDevice}}
	if at.caps.atomics {
		l.caps.RMA.FetchAdd, l.caps.RMA.CompareSwap = l.fetchAdd, l.compareSwap
	}
	l.caps.Offload = s.deviceMatches
	return l
}

// Caps is transport.Link's.
func (l *link) Caps() *transport.Caps { return &l.caps }

// cut is transport.Caps's: queue pairs in error serve no READ and take no WRITE.
func (l *link) cut() {
	l.s.d.fail(l.s, fmt.Errorf("%w: this rank has cut the connection", transport.ErrPeerGone), true)
}

// TrySend implements transport.Link.
func (l *link) TrySend(h *wire.Header, payload []byte) bool {
	s := l.s
	d := s.d
	if s.failed || d.closed.Load() {
		return true
	}
	if len(payload) > eagerMax {
		panic(fmt.Sprintf("verbs: %d bytes over a link that takes %d", len(payload), eagerMax))
	}
	o := &d.one[0]
	*o = op{qp: s.qp, opcode: opSend, lkey: d.send.region.lkey}
	buffer := int32(-1)
	size := s.frameSize(h, payload)
	var frame []byte
	switch {
	case !s.room(1):
		s.refuse()
		return false
	case size <= s.inline:
		o.flags |= inlined
		frame = d.scratch[:]
	case len(d.freeSends) == 0:
		s.refuse()
		return false
	default:
		buffer = int32(d.freeSends[len(d.freeSends)-1])
		frame = d.send.piece(uint32(buffer))
	}
	o.local, o.length = addressOf(frame), uint32(s.frame(frame, h, payload))
	if h.Flags&(wire.Urgent|wire.Wake) != 0 {
		o.flags |= solicited
	}
	if s.unsignaled++; s.unsignaled >= signalEvery || d.runsShort() {
		s.unsignaled = 0
		o.flags |= signaled
	}
	if !s.submit(record{buffer: buffer}) {
		return s.failed
	}
	if buffer >= 0 {
		d.freeSends = d.freeSends[:len(d.freeSends)-1]
	}
	d.stats.Sent++
	d.stats.Copied += uint64(len(payload))
	return true
}

// room reports whether n more requests may be posted.
func (s *session) room(n int) bool {
	return int(s.next-s.done)+n <= s.most && s.d.inFlight+n <= s.d.limit
}

// refuse notes that Room is to be told: when requests of this session are over, or if it is others that hold what all
// share, when some of theirs are.
func (s *session) refuse() {
	if !s.refused && int(s.next-s.done) < s.most {
		s.d.starved = append(s.d.starved, s)
	}
	s.owesRoom(true)
}

// owesRoom notes whether Room is to be told.
func (s *session) owesRoom(owes bool) {
	d := s.d
	if owes == s.refused || owes && s.failed {
		return
	}
	if s.refused = owes; owes {
		d.refusals++
		d.armAgain()
	} else {
		d.refusals--
	}
}

// submit posts d.one, for which there is room. It reports whether it has been taken; refused says that it may be later.
func (s *session) submit(r record) bool {
	d := s.d
	d.one[0].id = uint64(s.index)<<32 | uint64(s.next)
	if _, err := d.hca.post(d.one[:]); err != nil {
		if errors.Is(err, errNoRoom) {
			s.owesRoom(true)
		} else {
			d.fail(s, fmt.Errorf("posting a request: %w", err), true)
		}
		return false
	}
	d.taken(&s.requests, r)
	if !d.tails.owing.Load() { // this rank may be armed, and Poll is not called before something wakes it
		d.tails.owing.Store(true)
	}
	return true
}

// unconfirmed reports whether the last request will not make a completion.
func (s *session) unconfirmed() bool { return s.next != s.done && s.unsignaled > 0 }

// confirm makes the end of what was sent known. In the error state the request fails, which says the same; nothing else
// would, if what was done before is not flushed.
func (s *session) confirm() {
	if s.unconfirmed() {
		s.postEmpty()
	}
}

// postEmpty posts an empty WRITE, which needs no buffer of the peer's, unless the queues are full.
func (s *session) postEmpty() {
	if int(s.next-s.done) > s.most || s.d.inFlight >= s.d.limit+lastRequests {
		return
	}
	s.d.one[0] = op{qp: s.qp, opcode: opWrite, flags: signaled}
	if s.submit(record{buffer: -1}) {
		s.unsignaled = 0
	}
}
