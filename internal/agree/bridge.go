package agree

import (
	"fmt"
	"slices"

	"github.com/gorun-mpi/mpi/internal/mpierr"
	"github.com/gorun-mpi/mpi/internal/ranks"
)

// Bridge is how two groups agree: each has a meeting of its own, and the leaders tell each other what has come of it.
type Bridge struct {
	C             *Group // the caller's communicator
	Over          *Group // where the leaders are; nil: this rank leads no group, or its caller has made a mistake
	Remote        int    // the other leader, in the world
	Tag           int32  // of what the leaders say
	High, FarHigh bool
	Far           *ranks.Set // the other group
	// Note is what the leader tells the other group beyond that. TakeNote gets what the other leader has told, and
	// reports whether that can be; nil: it is of no use.
	Note     []byte
	TakeNote func(note []byte) bool
}

// Number finds the number of a communicator of both groups.
func (b *Bridge) Number(m *Exchange, args []byte, no *Veto) (uint32, *Veto) {
	a := agreement{Exchange: m, want: 1, wrapped: true}
	return a.find(func(mine uint32) (uint32, *Veto) {
		free, other := m.Round(mine, args, no, nil)
		args = nil // they are known
		if free, other = b.cross(m, free, other, true); other == nil {
			a.seed = uint32(m.members.At(0) ^ b.Far.At(0)) // the same on both sides
		}
		return free, other
	}, func() *ranks.Set { return b.both(m) })
}

// both is the ranks of both groups, as far as they are known.
func (b *Bridge) both(m *Exchange) *ranks.Set {
	if b.Far == nil {
		return m.members
	}
	return ranks.Of(slices.Concat(m.members.Runs, b.Far.Runs)...)
}

// Vote is Exchange.Vote of both groups: each votes in a round of its own, and the leaders tell each other.
func (b *Bridge) Vote(m *Exchange, id uint32) *Veto {
	_, no := m.Round(0, nil, nil, nil)
	_, told := b.cross(m, id, no, false)
	no = m.conclude(id, true, told, b.both(m)) // what this group has been told may not be what the other one has
	if no != nil {
		m.Group.Abandon(id, b.both(m))
	}
	return no
}

// cross lets both groups know the larger value of both, and which ranks are there. What the own group refuses the
// leader tells the other one: also after the exchange, if that will go on.
func (b *Bridge) cross(m *Exchange, value uint32, no *Veto, goesOn bool) (uint32, *Veto) {
	if b.Over == nil {
		return m.Round(0, nil, no, &leaderPayload{b: b})
	}
	word, both, before := b.Talk(m, value, no)
	value, no = m.Round(both, nil, before, &leaderPayload{b, word})
	if before == nil && no != nil && goesOn {
		b.Leave(m, b.Remote, no)
	}
	return value, no
}

// message is what a leader says to the other one.
func (b *Bridge) message(m *Exchange, value uint32, no *Veto) *leaderMessage {
	high := int64(0)
	if b.High {
		high = 1
	}
	return &leaderMessage{tag: b.Tag, kind: m.kind, value: value, no: no,
		told: AppendBytes(AppendRanks(AppendInts(nil, high), m.members), b.Note)}
}

// Talk exchanges with the other leader. told is what the group has to know of the other one.
func (b *Bridge) Talk(m *Exchange, value uint32, no *Veto) (told []byte, _ uint32, _ *Veto) {
	w, other := b.exchange(m, b.message(m, value, no))
	if w != nil {
		told, value, b.Far = w.told, max(value, w.value), w.far
	}
	if no == nil {
		no = other
	}
	if no == nil && overlap(m.members, b.Far) {
		no = Overlapping()
	}
	return told, value, no
}

func overlap(s, t *ranks.Set) (common bool) {
	s.All(func(w int32) bool {
		common = t.Find(w) != ranks.Undefined
		return !common
	})
	return common
}

// leaderPayload is the payload by which a leader tells its group who the other one is.
type leaderPayload struct {
	b       *Bridge
	message []byte // nil: not known here yet
}

func (l *leaderPayload) Take(_ int, d *Decoder) *Veto {
	if b := d.Bytes(); len(b) > 0 {
		l.message = b
	}
	return nil
}

func (l *leaderPayload) Up() []byte      { return AppendBytes(nil, l.message) }
func (l *leaderPayload) Down(int) []byte { return l.Up() }

func (l *leaderPayload) Decide() *Veto {
	if !l.read() {
		return &Veto{Class: mpierr.ErrAborted, Text: "no rank has said who is in the other group"}
	}
	return nil
}

func (l *leaderPayload) ReadVerdict(d *Decoder) {
	l.message = d.Bytes()
	d.Bad = d.Bad || !l.read()
}

// read reports whether the word is one.
func (l *leaderPayload) read() bool {
	d := Decoder{B: l.message}
	high, far, note := readTold(&d, l.b.C.Engine.Size())
	if !d.Over() || far.N == 0 || l.b.TakeNote != nil && !l.b.TakeNote(note) {
		return false
	}
	l.b.FarHigh, l.b.Far = high, far
	return true
}

// SameLeader sees that all ranks of a group give the same leader. bad is what is wrong with this rank's arguments.
func (m *Exchange) SameLeader(leader int, bad *mpierr.Error) *Veto {
	lead, no := m.Round(uint32(leader), nil, m.Refuse(bad), nil)
	if no == nil && int(lead) != leader {
		no = &Veto{Class: mpierr.ErrComm, Text: fmt.Sprintf("rank %d gives %d as the leader, and another rank %d; all "+
			"give the same", m.Group.Rank, leader, lead)}
	}
	_, no = m.Round(0, nil, no, nil)
	return no
}
