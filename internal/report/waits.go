package report

import (
	"cmp"
	"slices"
)

type waitKey struct {
	rank, of int
	why      string
	// Of the two ranks.
	site, theirs int32
}

// waits are the times that ranks have waited for others.
type waits struct {
	rows map[waitKey]*WaitRow
	// ofEvent is how long a call of a rank has waited at its begin. A call that waits for several messages waits for
	// the last of them, so this is not their sum.
	ofEvent [][]int64
	ofCalls map[callKey]int64 // the sums of ofEvent
}

// callKey are the calls of a rank at one line that have waited for one reason. Until sumWaits the site is the rank's,
// and then the report's.
type callKey struct {
	rank, site int
	why        string
}

func newWaits(parts []*Part) *waits {
	w := &waits{rows: map[waitKey]*WaitRow{}, ofCalls: map[callKey]int64{},
		ofEvent: make([][]int64, len(parts))}
	for rank, p := range parts {
		w.ofEvent[rank] = make([]int64, len(p.Events))
	}
	return w
}

// of is how long a rank has waited.
func (w *waits) of(rank int) (sum int64) {
	for _, t := range w.ofEvent[rank] {
		sum += t
	}
	return sum
}

// moment is a call of a rank on the timeline.
type moment struct {
	rank  int
	event int32
	*Event
}

func (m *Merged) moment(rank int, event int32) moment {
	return moment{rank, event, &m.parts[rank].Events[event]}
}

// add says that a call waited until another one began, or until its own end.
func (w *waits) add(waiting, late moment, why string) {
	time := min(late.Begin, waiting.End) - waiting.Begin
	if time <= 0 || waiting.rank == late.rank {
		return
	}
	k := waitKey{waiting.rank, late.rank, why, waiting.Site, late.Site}
	row := w.rows[k]
	if row == nil {
		row = &WaitRow{Rank: waiting.rank, For: late.rank, Why: why}
		w.rows[k] = row
	}
	row.Times++
	row.Time += time
	if of := &w.ofEvent[waiting.rank][waiting.event]; time > *of {
		w.ofCalls[callKey{waiting.rank, int(waiting.Site), why}] += time - *of
		*of = time
	}
}

// delivery is a message whose calls are both on the timeline.
type delivery struct {
	from, to moment
	Message
}

// deliveries finds the receive of each send. Messages from one rank to another one with one tag come in the order in
// which they were sent.
func (m *Merged) deliveries() (all []delivery) {
	type stream struct {
		context       uint32
		from, to, tag int
	}
	sends := map[stream][]Transfer{}
	for rank, p := range m.parts {
		for _, t := range p.Transfers {
			if t.Way == Sent {
				k := stream{t.Context, rank, t.Peer, t.Tag}
				sends[k] = append(sends[k], t)
			}
		}
	}
	for rank, p := range m.parts {
		for _, t := range p.Transfers {
			if t.Way != Received {
				continue
			}
			k := stream{t.Context, t.Peer, rank, t.Tag}
			if len(sends[k]) == 0 {
				m.Report.Timeline.Strange++ // its send is not on the timeline
				continue
			}
			s := sends[k][0]
			sends[k] = sends[k][1:]
			all = append(all, delivery{m.moment(t.Peer, s.Event), m.moment(rank, t.Event), t.Message})
		}
	}
	return all
}

// settle moves the clocks of hosts so that no message is received before it is sent. Two clocks are compared by a
// message in each direction, and on a busy host one of these may take milliseconds longer than the other. Where no
// clocks fit, they stay as they are.
func (m *Merged) settle(all []delivery) {
	type clock struct{ offset, drift int64 } // of a host: its ranks have the same
	of := func(rank int) clock { return clock{m.parts[rank].Offset, m.parts[rank].Drift} }
	clocks := map[clock]bool{}
	early := map[[2]clock]int64{} // of two clocks: by how much a receive has ended before its send began
	for _, p := range all {
		k := [2]clock{of(p.from.rank), of(p.to.rank)}
		if k[0] == k[1] { // what has gone wrong there no clock explains
			continue
		}
		clocks[k[0]], clocks[k[1]] = true, true
		gap := p.from.Begin - p.to.End
		if most, known := early[k]; !known || gap > most {
			early[k] = gap
		}
	}
	moved := map[clock]int64{}
	for fits, rounds := false, 0; !fits; rounds++ {
		if rounds > len(clocks) {
			return
		}
		fits = true
		for k, gap := range early {
			if still := gap + moved[k[0]] - moved[k[1]]; still > 0 {
				moved[k[1]] += still
				fits = false
			}
		}
	}
	first := moved[of(0)]
	for rank, p := range m.parts {
		by := moved[of(rank)] - first
		p.Offset, p.Drift = p.Offset+by, p.Drift+by
		for i := range p.Events {
			p.Events[i].Begin += by
			p.Events[i].End += by
		}
	}
}

// match makes the arrows of messages, and finds who has waited for them.
func (m *Merged) match(all []delivery) {
	for _, p := range all {
		from, to := p.from, p.to
		if to.End < from.Begin {
			m.Report.Timeline.Strange++ // requests of one tag that were completed in another order
			continue
		}
		m.arrows = append(m.arrows, arrow{from.rank, to.rank, p.Tag, p.Bytes, from.Begin, to.End})
		m.waits.add(to, from, lateSender)
		recv := m.parts[to.rank].Sites[to.Site].Kind == "recv"
		if recv && from.End >= to.Begin { // the send has not left the message behind
			m.waits.add(from, to, lateReceiver)
		}
	}
}

// collectives finds the last rank of each collective call. The n-th one on a communicator is the same call at all its
// ranks.
func (m *Merged) collectives() {
	type comm struct {
		context uint32
		first   int32
	}
	type call struct {
		comm
		number int
	}
	calls := map[call][]moment{}
	for rank, p := range m.parts {
		numbers := map[comm]int{}
		for i, e := range p.Events {
			if !e.Collective {
				continue
			}
			on := comm{e.Context, e.First}
			numbers[on]++
			k := call{on, numbers[on]}
			calls[k] = append(calls[k], m.moment(rank, int32(i)))
		}
	}
	for _, all := range calls {
		last := slices.MaxFunc(all, func(a, b moment) int { return cmp.Compare(a.Begin, b.Begin) })
		for _, a := range all {
			m.waits.add(a, last, lateCall)
		}
	}
}

// sumWaits sets Report.Waits to all rows; longestWaits bounds them.
func (m *Merged) sumWaits() {
	ofCalls := map[callKey]int64{}
	for k, time := range m.waits.ofCalls {
		ofCalls[callKey{k.rank, m.siteOf[k.rank][k.site], k.why}] += time
	}
	m.waits.ofCalls = ofCalls
	for k, row := range m.waits.rows {
		row.Site, row.ForSite = m.siteOf[k.rank][k.site], m.siteOf[k.of][k.theirs]
		m.Report.Waits = append(m.Report.Waits, *row)
	}
	slices.SortFunc(m.Report.Waits, func(a, b WaitRow) int {
		return cmp.Or(cmp.Compare(b.Time, a.Time), cmp.Compare(a.Rank, b.Rank), cmp.Compare(a.For, b.For),
			cmp.Compare(a.Why, b.Why), cmp.Compare(a.Site, b.Site), cmp.Compare(a.ForSite, b.ForSite))
	})
}

func longestWaits(all []WaitRow) (kept []WaitRow, rest RestRow) {
	n := min(len(all), mostWaits)
	for _, row := range all[n:] {
		rest.Rows++
		rest.Time += row.Time
	}
	return all[:n:n], rest
}
