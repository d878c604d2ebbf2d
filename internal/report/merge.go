package report

import (
	"cmp"
	"fmt"
	"slices"
)

// Report is what report.json holds. Times are nanoseconds.
type Report struct {
	Ranks     []RankRow   `json:"ranks"`
	Sites     []SiteRow   `json:"sites"`     // by time, the longest first
	Waits     []WaitRow   `json:"waits"`     // by time, the longest first
	Sizes     []SizeRow   `json:"sizes"`     // of messages sent, and of operations that write to windows
	Matrix    []Cell      `json:"matrix"`    // without the messages that collective calls consist of
	Imbalance float64     `json:"imbalance"` // the longest computation of a rank by the mean, 1: none
	Timeline  TimelineRow `json:"timeline"`
}

// RankRow is a rank.
type RankRow struct {
	Rank      int    `json:"rank"`
	Host      string `json:"host"`
	Transport string `json:"transport"`
	Time      int64  `json:"time"` // from Init to Finalize
	InCalls   int64  `json:"in_calls"`
	Computing int64  `json:"computing"`
	Waiting   int64  `json:"waiting"` // for another rank, as far as the timeline goes
	Calls     int64  `json:"calls"`
	CPU       int64  `json:"cpu"`    // of its process
	Memory    int64  `json:"memory"` // bytes, the most that its process has had
}

// SiteRow is a line of the program, at all ranks.
type SiteRow struct {
	Op      string `json:"op"`
	Kind    string `json:"kind"`
	Func    string `json:"func"`
	File    string `json:"file"`
	Line    int    `json:"line"`
	Ranks   int    `json:"ranks"` // that have come there
	Calls   int64  `json:"calls"`
	Bytes   int64  `json:"bytes"`
	Time    int64  `json:"time"`
	Longest int64  `json:"longest"`
	Waiting int64  `json:"waiting"` // of Time, for another rank, as far as the timeline goes
}

// WaitRow is the time that a rank has waited for another one.
type WaitRow struct {
	Rank  int    `json:"rank"`
	For   int    `json:"for"`
	Why   string `json:"why"` // "late sender", "late receiver", "late in a collective call"
	Times int64  `json:"times"`
	Time  int64  `json:"time"`
}

// SizeRow is how many messages have from From up to To bytes.
type SizeRow struct {
	From     int64 `json:"from"`
	To       int64 `json:"to"`
	Messages int64 `json:"messages"`
}

// Cell is what one rank has sent to another one, or written to or read from its window.
type Cell struct {
	From     int   `json:"from"`
	To       int   `json:"to"`
	Messages int64 `json:"messages"`
	Bytes    int64 `json:"bytes"`
}

// TimelineRow says how much of the calls is on the timeline.
type TimelineRow struct {
	Kept    int64  `json:"kept"`
	Unkept  int64  `json:"unkept"` // calls later than the kept ones of their rank; the sums have them
	Arrows  int64  `json:"arrows"`
	Strange int64  `json:"strange"` // messages that have no place on the timeline
	Note    string `json:"note,omitempty"`
}

// arrow is a message from a send to a receive.
type arrow struct {
	from, to           int // ranks
	send, receive      int32
	tag                int
	bytes              int64
	sendBegin, sendEnd int64
	recvBegin, recvEnd int64
}

// Merged is a report and its timeline, on the clock of rank 0.
type Merged struct {
	Report Report
	parts  []*Part
	arrows []arrow
	begin  int64
}

// at turns a time of the rank's clock into one of rank 0's.
func (p *Part) at(t int64) int64 {
	if p.End == p.Begin || p.Offset == p.Drift {
		return t + p.Offset
	}
	share := float64(t-p.Begin) / float64(p.End-p.Begin)
	return t + p.Offset + int64(share*float64(p.Drift-p.Offset))
}

// check reports what cannot be in a part: other ranks have sent it.
func (p *Part) check(rank, size int) error {
	for _, e := range p.Events {
		if e.Site < 0 || int(e.Site) >= len(p.Sites) || e.End < e.Begin {
			return fmt.Errorf("rank %d: a call on the timeline that cannot be", rank)
		}
	}
	for _, t := range p.Transfers {
		if t.Event < 0 || int(t.Event) >= len(p.Events) || t.Peer < 0 || t.Peer >= size {
			return fmt.Errorf("rank %d: a message on the timeline that cannot be", rank)
		}
	}
	for _, f := range slices.Concat(p.Out, p.In) {
		if f.Peer < 0 || f.Peer >= size {
			return fmt.Errorf("rank %d: it has sent to rank %d of %d", rank, f.Peer, size)
		}
	}
	if p.Rank != rank || p.End < p.Begin {
		return fmt.Errorf("rank %d: a part of rank %d", rank, p.Rank)
	}
	return nil
}

// Merge makes the report of the parts of all ranks, in their order.
func Merge(parts []*Part) (*Merged, error) {
	m := &Merged{parts: parts}
	for rank, p := range parts {
		if err := p.check(rank, len(parts)); err != nil {
			return nil, err
		}
		for i, e := range p.Events {
			p.Events[i].Begin, p.Events[i].End = p.at(e.Begin), p.at(e.End)
		}
		if b := p.at(p.Begin); rank == 0 || b < m.begin {
			m.begin = b
		}
	}
	w := &waits{rows: map[waitKey]*WaitRow{}, ofRank: make([]int64, len(parts)), ofSite: make([][]int64, len(parts))}
	for rank, p := range parts {
		w.ofSite[rank] = make([]int64, len(p.Sites))
	}
	m.match(w)
	m.collectives(w)
	m.sums(w)
	return m, nil
}

func (m *Merged) sums(w *waits) {
	r := &m.Report
	type line struct {
		op, fn, file string
		line         int
	}
	lines := map[line]*SiteRow{}
	cells := map[[2]int]*Cell{}
	cell := func(from, to int, f Flow) {
		c := cells[[2]int{from, to}]
		if c == nil {
			c = &Cell{From: from, To: to}
			cells[[2]int{from, to}] = c
		}
		c.Messages, c.Bytes = c.Messages+f.Messages, c.Bytes+f.Bytes
	}
	var sizes [65]int64
	var longest, all int64
	for rank, p := range m.parts {
		time := p.End - p.Begin
		row := RankRow{Rank: rank, Host: p.Host, Transport: p.Transport, Time: time, InCalls: p.InCalls,
			Computing: max(0, time-p.InCalls), Waiting: w.ofRank[rank], Calls: p.Calls, CPU: p.CPU, Memory: p.Memory}
		r.Ranks = append(r.Ranks, row)
		longest, all = max(longest, row.Computing), all+row.Computing
		for i, s := range p.Sites {
			k := line{s.Op, s.Func, s.File, s.Line}
			row := lines[k]
			if row == nil {
				row = &SiteRow{Op: s.Op, Kind: s.Kind, Func: s.Func, File: s.File, Line: s.Line}
				lines[k] = row
			}
			row.Ranks++
			row.Calls += s.Calls
			row.Bytes += s.Bytes
			row.Time += s.Time
			row.Longest = max(row.Longest, s.Longest)
			row.Waiting += w.ofSite[rank][i]
		}
		for _, f := range p.Out {
			cell(rank, f.Peer, f)
		}
		for _, f := range p.In {
			cell(f.Peer, rank, f)
		}
		for i, n := range p.Sizes {
			sizes[i] += n
		}
		r.Timeline.Kept += int64(len(p.Events))
		r.Timeline.Unkept += p.Unkept
	}
	r.Timeline.Arrows = int64(len(m.arrows))
	if r.Timeline.Unkept > 0 {
		r.Timeline.Note = fmt.Sprintf("the timeline and the waiting times have the first calls of each rank; %d later "+
			"ones are in the sums only", r.Timeline.Unkept)
	}
	if all > 0 {
		r.Imbalance = float64(longest) * float64(len(m.parts)) / float64(all)
	}
	for _, s := range lines {
		r.Sites = append(r.Sites, *s)
	}
	slices.SortFunc(r.Sites, func(a, b SiteRow) int {
		return cmp.Or(cmp.Compare(b.Time, a.Time), cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line),
			cmp.Compare(a.Op, b.Op))
	})
	for _, c := range cells {
		r.Matrix = append(r.Matrix, *c)
	}
	slices.SortFunc(r.Matrix, func(a, b Cell) int {
		return cmp.Or(cmp.Compare(a.From, b.From), cmp.Compare(a.To, b.To))
	})
	for i, n := range sizes {
		if n > 0 {
			row := SizeRow{Messages: n}
			if i > 0 {
				row.From, row.To = 1<<(i-1), 1<<min(i, 62)-1
			}
			r.Sizes = append(r.Sizes, row)
		}
	}
	for _, row := range w.rows {
		r.Waits = append(r.Waits, *row)
	}
	slices.SortFunc(r.Waits, func(a, b WaitRow) int {
		return cmp.Or(cmp.Compare(b.Time, a.Time), cmp.Compare(a.Rank, b.Rank), cmp.Compare(a.For, b.For))
	})
}

type waitKey struct {
	rank, of int
	why      string
}

// waits are the times that ranks have waited for others.
type waits struct {
	rows   map[waitKey]*WaitRow
	ofRank []int64
	ofSite [][]int64
}

func (w *waits) add(rank, of int, why string, site int32, time int64) {
	if time <= 0 || rank == of {
		return
	}
	k := waitKey{rank, of, why}
	if w.rows[k] == nil {
		w.rows[k] = &WaitRow{Rank: rank, For: of, Why: why}
	}
	w.rows[k].Times++
	w.rows[k].Time += time
	w.ofRank[rank] += time
	w.ofSite[rank][site] += time
}

// match finds the receive of each send. Messages from one rank to another one with one tag come in the order in which
// they were sent.
func (m *Merged) match(w *waits) {
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
			from, to := m.parts[t.Peer].Events[s.Event], p.Events[t.Event]
			if to.End < from.Begin {
				m.Report.Timeline.Strange++ // requests of one tag that were completed in another order
				continue
			}
			m.arrows = append(m.arrows, arrow{t.Peer, rank, s.Event, t.Event, t.Tag, t.Bytes, from.Begin, from.End,
				to.Begin, to.End})
			w.add(rank, t.Peer, "late sender", to.Site, min(from.Begin, to.End)-to.Begin)
			if p.Sites[to.Site].Kind == "recv" && from.End >= to.Begin { // the send has not left the message behind
				w.add(t.Peer, rank, "late receiver", from.Site, to.Begin-from.Begin)
			}
		}
	}
}

// collectives finds the last rank of each collective call. The n-th one on a communicator is the same call at all its
// ranks.
func (m *Merged) collectives(w *waits) {
	type call struct {
		context uint32
		number  int
	}
	type at struct {
		rank  int
		event Event
	}
	calls := map[call][]at{}
	for rank, p := range m.parts {
		numbers := map[uint32]int{}
		for _, e := range p.Events {
			if !e.Collective {
				continue
			}
			numbers[e.Context]++
			k := call{e.Context, numbers[e.Context]}
			calls[k] = append(calls[k], at{rank, e})
		}
	}
	for _, all := range calls {
		last := slices.MaxFunc(all, func(a, b at) int { return cmp.Compare(a.event.Begin, b.event.Begin) })
		for _, a := range all {
			w.add(a.rank, last.rank, "late in a collective call", a.event.Site,
				min(last.event.Begin, a.event.End)-a.event.Begin)
		}
	}
}
