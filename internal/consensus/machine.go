package consensus

// Value is what a rank gives to an agreement, and what the ranks agree on.
type Value struct {
	Flags     uint32 // the bits that all ranks give
	Low, High uint32 // the least and the greatest number that a rank gives
	Calls     uint32 // the bits that any rank gives
	Count     uint32 // the greatest that a rank gives
	Acked     Set    // the ranks that all ranks give: failures that the callers have acknowledged
	Dead      Set    // of a decision: who was dead, as the rank that decided knew
	Gone      Set    // of a decision: of the dead, the ranks that are known to have left
}

// and adds what another rank gives. The sets of a Value do not change.
func (v Value) and(w Value) Value {
	return Value{Flags: v.Flags & w.Flags, Low: min(v.Low, w.Low), High: max(v.High, w.High), Calls: v.Calls | w.Calls,
		Count: max(v.Count, w.Count), Acked: both(v.Acked, w.Acked)}
}

// Kind is the kind of a message.
type Kind uint8

const (
	Report   Kind = iota // what the sender and the ranks below it give; the receiver answers with the decision
	Ask                  // the sender waits for a report of the receiver
	Decision             // what has been agreed
	Left                 // the sender takes part in no agreement any more
	Apart                // the sender takes the receiver for dead
	Kinds
)

// Frame is a message.
type Frame struct {
	Kind   Kind
	Number uint32 // of the agreement, from 1 on
	Dead   Set    // who is dead, as the sender knows
	Gone   Set    // and of these, who has left
	Value  Value  // of a Report and a Decision
}

// Message is a frame for another rank.
type Message struct {
	To int
	Frame
}

// Machine is one rank of a communicator, which makes one agreement after the other.
//
// It ignores frames of ranks that it knows to be dead. That is why a decision which is under way from a dead rank does
// no harm: a rank that has told its new parent that it knows of no decision takes none of an earlier parent any more.
//
// A rank begins an agreement when it has the decision of the one before. So when all living ranks have reported in an
// agreement, no rank needs an earlier decision: a Machine keeps the last one.
type Machine struct {
	me, n int
	digit uint // bits of a digit of the tree: digitBits
	dead  Set  // as this rank knows. It only grows, and never has me
	gone  Set  // of these, the ranks that have said Left to this rank or to another one
	mute  Set  // of dead, the ranks that have died, or have themselves said to this rank that they have left

	last    uint32 // the agreement that was decided here last; 0: none
	decided Value  // of it
	begun   uint32 // the agreement that was begun here last: last or last+1

	// Of the agreement last+1.
	own     Value            // what this rank gives; valid if begun is last+1
	told    int              // the rank that this one has reported to; none: no rank
	asked   Set              // the children that this rank has asked
	sought  Set              // the ranks that have left and that it has asked
	reports [2]map[int]Value // what others have reported in last+1, and in the one after

	left  bool // this rank begins no agreement any more
	alone bool // others that live take this rank for dead
	out   []Message
}

// New returns the machine of one of n ranks.
func New(n, me int) *Machine {
	return &Machine{me: me, n: n, digit: digitBits, told: none, reports: [2]map[int]Value{{}, {}}}
}

// Begin begins the next agreement, to which this rank gives v, and returns its number. The one before is decided.
func (m *Machine) Begin(v Value) (number uint32) {
	m.begun = m.last + 1
	m.own = v
	m.own.Acked = v.Acked.Clone()
	m.step()
	return m.begun
}

// Decided returns the number of the agreement that was decided last, and its value. 0: no agreement was.
func (m *Machine) Decided() (number uint32, v Value) { return m.last, m.decided }

// Dead returns the ranks that are dead, as this rank knows. It is valid until the next call.
func (m *Machine) Dead() Set { return m.dead }

// Alone reports whether this rank goes on alone: Dead has all others, whether they live or not.
func (m *Machine) Alone() bool { return m.alone }

// Messages returns the messages to send, which the machine forgets.
func (m *Machine) Messages() []Message {
	out := m.out
	m.out = nil
	return out
}

// Died tells the machine that a rank has died.
func (m *Machine) Died(rank int) {
	if rank < 0 || rank >= m.n || rank == m.me {
		return
	}
	if fresh := m.dead.Add(rank); m.mute.Add(rank) || fresh {
		m.step()
	}
}

// Leave tells the machine that this rank begins no agreement any more. It still answers.
func (m *Machine) Leave() {
	m.left = true
	for _, reports := range m.reports {
		for rank := range reports {
			m.send(rank, Left)
		}
	}
}

// Nudge asks the ranks whose reports are missing, or reports again. It is for a rank that has waited for long: the
// others may have left.
func (m *Machine) Nudge() {
	if m.begun == m.last {
		return
	}
	m.told = none
	m.step()
	m.children(m.me, m.dead, func(child int) {
		if _, ok := m.reports[0][child]; !ok {
			m.send(child, Ask)
		}
	})
	if m.decides() {
		for rank := range m.knowing {
			m.send(rank, Ask)
		}
	}
}

// Hear takes a frame of another rank.
func (m *Machine) Hear(from int, f Frame) {
	asks := f.Kind == Report || f.Kind == Ask
	if from < 0 || from >= m.n || from == m.me {
		return
	}
	if m.dead.Has(from) {
		switch {
		case m.gone.Has(from):
			m.hearGone(from, f)
		case asks: // it lives, and its connection to another rank has broken: it is not to wait for this one
			m.send(from, m.farewell())
		}
		return
	}
	if f.Dead.Has(m.me) && !m.left {
		m.goAlone()
		return
	}
	m.learn(f.Dead, f.Gone)
	switch {
	case f.Kind == Left:
		m.dead.Add(from)
		m.gone.Add(from)
		m.mute.Add(from)
	case f.Kind == Apart:
		m.dead.Add(from)
	case asks && f.Number == m.last && m.last > 0:
		m.send(from, Decision)
	case asks && m.left && f.Number > m.last:
		m.send(from, Left)
	case f.Number <= m.last || f.Number > m.last+2: // an answer that comes late, or nonsense
	case f.Kind == Report:
		m.reports[f.Number-m.last-1][from] = f.Value
	case f.Kind == Decision && f.Number == m.begun:
		m.decide(from, f.Value)
	}
	m.step()
}

// hearGone takes the answer of a rank that has left to the rank that decides. Other ranks have the decision from that.
// What it has asked is older: it waits for nothing any more. It says Left to no rank that wants its last decision.
func (m *Machine) hearGone(from int, f Frame) {
	switch {
	case f.Kind == Left:
		m.mute.Add(from)
		m.step()
	case f.Kind == Decision && f.Number == m.begun && m.begun > m.last && m.decides():
		m.decide(from, f.Value)
	}
}

// decides reports whether no other rank decides, as this one knows.
func (m *Machine) decides() bool { return m.parent(m.me, m.dead) == none }

// knowing calls yield with the ranks that have left since the last decision and may have one of the agreement after
// it: they live, and their callers go by it.
func (m *Machine) knowing(yield func(rank int) bool) {
	if m.alone {
		return
	}
	for rank := range m.gone.All {
		if !m.decided.Gone.Has(rank) && !m.mute.Has(rank) && !yield(rank) {
			return
		}
	}
}

// learn takes what another rank knows of deaths.
func (m *Machine) learn(dead, gone Set) {
	for rank := range dead.All {
		if rank < m.n && rank != m.me {
			if m.dead.Add(rank); gone.Has(rank) {
				m.gone.Add(rank)
			}
		}
	}
}

// farewell is the kind of the frame for a rank that is not to wait for this one.
func (m *Machine) farewell() Kind {
	if m.left {
		return Left
	}
	return Apart
}

// goAlone is called when a rank that lives takes this one for dead: a connection has broken. All others will do so.
// Each is dead to this rank from now on. A frame of this rank names no deaths any more: those ranks live, and are to
// stay together.
func (m *Machine) goAlone() {
	m.alone = true
	for rank := range m.n {
		if rank != m.me {
			m.dead.Add(rank)
		}
	}
	m.step()
}

// step reports to the parent, or decides, once all children have reported, and ranks that have left have no decision.
func (m *Machine) step() {
	if m.begun == m.last {
		return
	}
	v, complete := m.own, true
	m.children(m.me, m.dead, func(child int) {
		if report, ok := m.reports[0][child]; ok {
			v = v.and(report)
			return
		}
		complete = false
		// A child reports by itself if it knows that this rank is its parent. All ranks know of the deaths that the
		// last decision names.
		if m.parent(child, m.decided.Dead) != m.me && m.asked.Add(child) {
			m.send(child, Ask)
		}
	})
	if !complete {
		return
	}
	switch parent := m.parent(m.me, m.dead); {
	case parent == none:
		for rank := range m.knowing {
			if complete = false; m.sought.Add(rank) {
				m.send(rank, Ask)
			}
		}
		if !complete {
			return
		}
		v.Dead, v.Gone = m.dead.Clone(), m.gone.Clone()
		m.decide(none, v)
	case parent != m.told:
		m.told = parent
		m.out = append(m.out, Message{parent, Frame{Report, m.begun, m.dead.Clone(), m.gone.Clone(), v}})
	}
}

// decide ends the agreement that was begun. from is the rank that has told this one of the decision.
func (m *Machine) decide(from int, v Value) {
	m.learn(v.Dead, v.Gone)
	waiting := m.reports[0]
	m.last, m.decided = m.begun, v
	m.told, m.asked, m.sought, m.reports = none, nil, nil, [2]map[int]Value{m.reports[1], {}}
	for rank := range waiting {
		if rank != from && !m.dead.Has(rank) {
			m.send(rank, Decision)
		}
	}
}

// send sends a frame without a value, or the last decision.
func (m *Machine) send(to int, kind Kind) {
	f := Frame{Kind: kind, Number: m.last + 1, Dead: m.dead.Clone(), Gone: m.gone.Clone()}
	if kind == Decision {
		f.Number, f.Value = m.last, m.decided
	}
	if m.alone {
		f.Dead, f.Gone = nil, nil
	}
	m.out = append(m.out, Message{to, f})
}
