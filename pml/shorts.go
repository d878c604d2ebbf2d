package pml

import (
	"github.com/gorun-mpi/mpi/eager"
	"github.com/gorun-mpi/mpi/transport"
)

// Short messages that come without a packet: transport.Facts's Short.

// shorts is where they come from.
type shorts struct {
	// next is the device's, where this path matches all of its messages and the engine is open; nil: there is only
	// Poll.
	next     func() (transport.Short, []byte, transport.Found)
	unpolled int // calls of next since the last Poll
}

// maxUnpolled calls of next happen between two Polls at most.
const maxUnpolled = 256

// pollShorts takes short messages, as many as a Poll would. It returns how many, and whether Poll is next.
func (l *linkPath) pollShorts() (n int, more bool) {
	e := l.e
	for ; n < len(e.pkts); n++ {
		if l.shorts.unpolled++; l.shorts.unpolled > maxUnpolled {
			return n, true
		}
		m, payload, found := l.shorts.next()
		if found != transport.FoundShort {
			return n, found == transport.FoundOther
		}
		if p := l.known(m.Source); p != nil && p.err == nil {
			l.onEager(p, m.Ctx, m.Tag, payload)
		} else {
			l.onShort(m, payload)
		}
		if e.wait.untilDone && e.load.outstanding == 0 {
			return n + 1, false // the rest is for nothing that is posted
		}
	}
	return n, false
}

// onShort takes a short message that came without a packet.
func (l *linkPath) onShort(m transport.Short, payload []byte) {
	if uint(m.Source) >= uint(len(l.peers)) {
		return // as in event
	}
	if p := l.peer(m.Source); p.err == nil {
		l.onEager(p, m.Ctx, m.Tag, payload)
	}
}

// mayLand reports whether a receive may look for a message before it is posted: the device can show it one, no leader
// polls, no peer has failed or wants credit, and nothing is under way of which a peer asks whether this rank polls.
// What is pending then is a packet to this rank at most, of which the watcher knows.
func (l *linkPath) mayLand() bool {
	return l.shorts.next != nil && l.needsCheck == 0 && l.e.wait.mayPoll() && l.transfers.none()
}

// landPolls is how many looks land takes for a caller that waits.
const landPolls = 64

// land copies the message for a receive with this envelope into buf, if it is queued or comes next, is short, and fits.
// It looks at so many messages at most, and as often where nothing comes and the caller may spin.
func (l *linkPath) land(ctx uint32, source, tag int32, buf []byte, looks int) (st Status, landed bool) {
	if !l.mayLand() {
		return st, false
	}
	if l.table.Unexpected() != 0 {
		if m := l.table.Probe(ctx, source, tag); m != nil {
			return l.takeOut(m.Owner.(*unexpected), buf)
		}
	}
	e := l.e
	for range looks {
		if l.shorts.unpolled++; l.shorts.unpolled > maxUnpolled {
			return st, false
		}
		m, payload, found := l.shorts.next()
		if found != transport.FoundShort {
			if found == transport.FoundOther || !e.pace.spins() || e.wait.armed != armedNot || // its sender would wake it
				e.asked() {
				break
			}
			continue
		}
		if m.Ctx != ctx || m.Source != source && source != AnySource || m.Tag != tag && tag != AnyTag {
			if l.onShort(m, payload); !l.mayLand() {
				break
			}
			continue
		}
		p := l.known(m.Source)
		if p == nil || len(payload) > len(buf) || l.table.Posted() != 0 && l.table.Peek(m.Ctx, m.Source, m.Tag) != nil {
			l.onShort(m, payload)
			break
		}
		copy(buf, payload)
		e.stats.MatchedOnArrival++
		p.out.Came()
		p.returnCredit(eager.Cost(len(payload)))
		return Status{Source: m.Source, Tag: m.Tag, Bytes: int64(len(payload))}, true
	}
	return st, false
}
