package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// arrow is a message from a send to a receive.
type arrow struct {
	from, to           int // ranks
	tag                int
	bytes              int64
	sendBegin, recvEnd int64
}

// Merged is a report and its timeline, on the clock of rank 0.
type Merged struct {
	Report     Report
	parts      []*Part
	siteOf     [][]int // of a rank, and of its site, in Report.Sites
	waits      *waits
	arrows     []arrow
	cells      []Cell // of all pairs of ranks
	begin, end int64
}

// at turns a time of the rank's clock into one of rank 0's.
func (p *Part) at(t int64) int64 {
	if p.End == p.Begin || p.Offset == p.Drift {
		return t + p.Offset
	}
	share := float64(t-p.Begin) / float64(p.End-p.Begin)
	return t + p.Offset + int64(share*float64(p.Drift-p.Offset))
}

// check reports what cannot be in a part, and shortens its names: other ranks have sent it.
func (p *Part) check(rank, size int) error {
	if p.Rank != rank || p.End < p.Begin {
		return fmt.Errorf("rank %d: a part of rank %d", rank, p.Rank)
	}
	if room := roomOf(size); len(p.Events) > room || len(p.Transfers) > 2*room || len(p.Out)+len(p.In) > 2*size {
		return fmt.Errorf("rank %d: more calls or messages than a rank keeps", rank)
	}
	if p.Sizes[64] != 0 || slices.Min(p.Sizes[:]) < 0 {
		return fmt.Errorf("rank %d: messages of lengths that cannot be", rank)
	}
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
	for _, flows := range [][]Flow{p.Out, p.In} {
		for i := range flows {
			f := &flows[i]
			if f.Peer < 0 || f.Peer >= size || f.Messages < 0 || f.Bytes < 0 {
				return fmt.Errorf("rank %d: it has sent to rank %d of %d", rank, f.Peer, size)
			}
			shorten(longestName, &f.Via)
		}
	}
	for i := range p.Sites {
		s := &p.Sites[i]
		if min(s.Calls, s.Bytes, s.Time, s.Longest) < 0 {
			return fmt.Errorf("rank %d: a line of the program with sums that cannot be", rank)
		}
		shorten(longestName, &s.Op, &s.Kind, &s.Func, &s.File)
	}
	for i := range p.Algorithms {
		shorten(longestName, &p.Algorithms[i].Op, &p.Algorithms[i].Names)
	}
	shorten(longestName, &p.Host, &p.Transport, &p.Program)
	return nil
}

// shorten cuts names to so many bytes.
func shorten(most int, names ...*string) {
	for _, s := range names {
		if len(*s) > most {
			*s = strings.ToValidUTF8((*s)[:most], "") + "…"
		}
	}
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
	}
	all := m.deliveries()
	m.settle(all)
	for rank, p := range parts {
		begin, end := p.at(p.Begin), p.at(p.End)
		if rank == 0 {
			m.begin, m.end = begin, end
		}
		m.begin, m.end = min(m.begin, begin), max(m.end, end)
	}
	m.waits = newWaits(parts)
	m.match(all)
	m.collectives()
	m.sumRanks()
	m.sumSites()
	m.sumFlows()
	m.sumAlgorithms()
	m.sumWaits()
	m.Report.Findings = m.findings()
	m.Report.Waits, m.Report.OtherWaits = longestWaits(m.Report.Waits)
	return m, nil
}

func (m *Merged) sumRanks() {
	r := &m.Report
	var longest, all int64
	var sizes [65]int64
	for rank, p := range m.parts {
		took := p.End - p.Begin
		row := RankRow{Rank: rank, Host: p.Host, Transport: p.Transport, Time: took, InCalls: p.InCalls,
			Computing: max(0, took-p.InCalls), Waiting: m.waits.of(rank), Calls: p.Calls, CPU: p.CPU, Memory: p.Memory}
		r.Ranks = append(r.Ranks, row)
		longest, all = max(longest, row.Computing), all+row.Computing
		for i, n := range p.Sizes {
			sizes[i] += n
		}
		r.Timeline.Kept += int64(len(p.Events))
		r.Timeline.Unkept += p.Unkept
	}
	if len(m.parts) > 0 {
		r.Program, r.Started = m.parts[0].Program, time.Unix(0, m.parts[0].Started).UTC().Format(time.RFC3339)
	}
	r.Timeline.Arrows = int64(len(m.arrows))
	if r.Timeline.Unkept > 0 {
		r.Timeline.Note = fmt.Sprintf("the timeline and the waiting times have the first calls of each rank; %s later "+
			"ones are in the sums only", inThousands(r.Timeline.Unkept))
	}
	r.Imbalance = 1
	if all > 0 {
		r.Imbalance = float64(longest) * float64(len(m.parts)) / float64(all)
	}
	for i, n := range sizes {
		if n > 0 {
			row := SizeRow{Messages: n}
			if i > 0 {
				row.From, row.To = 1<<(i-1), 1<<min(i, 62)-1
			}
			r.Sizes = append(r.Sizes, row)
		}
	}
}

func (m *Merged) sumSites() {
	type line struct {
		op, fn, file string
		line         int
	}
	known := map[line]int{}
	var rows []SiteRow
	m.siteOf = make([][]int, len(m.parts))
	for rank, p := range m.parts {
		m.siteOf[rank] = make([]int, len(p.Sites))
		for i, s := range p.Sites {
			k := line{s.Op, s.Func, s.File, s.Line}
			at, found := known[k]
			if !found {
				at = len(rows)
				known[k] = at
				rows = append(rows, SiteRow{Op: s.Op, Kind: s.Kind, Func: s.Func, File: s.File, Line: s.Line})
			}
			m.siteOf[rank][i] = at
			rows[at].add(SiteRow{Ranks: 1, Calls: s.Calls, Bytes: s.Bytes, Time: s.Time, Longest: s.Longest})
		}
		for i, e := range p.Events {
			rows[m.siteOf[rank][e.Site]].Waiting += m.waits.ofEvent[rank][i]
		}
	}
	order := make([]int, len(rows)) // of rows, the longest time first
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(i, j int) int {
		a, b := &rows[i], &rows[j]
		return cmp.Or(cmp.Compare(b.Time, a.Time), cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line),
			cmp.Compare(a.Op, b.Op))
	})
	place := make([]int, len(rows)) // in Report.Sites
	for n, i := range order {
		place[i] = min(n, mostSites)
		if n > mostSites {
			m.Report.Sites[mostSites].add(rows[i])
			continue
		}
		m.Report.Sites = append(m.Report.Sites, rows[i])
		if n == mostSites {
			last := &m.Report.Sites[n]
			last.Op, last.Kind, last.Func, last.File, last.Line = "other calls", "other", "all other lines", "", 0
		}
	}
	if len(rows) > mostSites {
		m.Report.Sites[mostSites].Ranks = 0 // unknown: a rank may have come to several of the lines
	}
	for _, sites := range m.siteOf {
		for i, at := range sites {
			sites[i] = place[at]
		}
	}
}

func (s *SiteRow) add(o SiteRow) {
	s.Ranks += o.Ranks
	s.Calls += o.Calls
	s.Bytes += o.Bytes
	s.Time += o.Time
	s.Longest = max(s.Longest, o.Longest)
	s.Waiting += o.Waiting
}

func (m *Merged) sumFlows() {
	cells := map[[2]int]Cell{}
	transports := map[string]TransportRow{}
	add := func(from, to int, f Flow) {
		k := [2]int{from, to}
		c, more := cells[k]
		cells[k] = Cell{from, to, c.Messages + f.Messages, c.Bytes + f.Bytes}
		t, known := transports[f.Via]
		if !known && len(transports) == mostTransports {
			return
		}
		if !more {
			t.Pairs++
		}
		transports[f.Via] = TransportRow{f.Via, t.Pairs, t.Messages + f.Messages, t.Bytes + f.Bytes}
	}
	for rank, p := range m.parts {
		for _, f := range p.Out {
			add(rank, f.Peer, f)
		}
		for _, f := range p.In {
			add(f.Peer, rank, f)
		}
	}
	m.cells = sortedCells(cells)
	m.Report.Matrix, m.Report.CellRanks = grouped(m.cells, len(m.parts), mostCells, func(rank int) int { return rank })
	for _, t := range transports {
		m.Report.Transports = append(m.Report.Transports, t)
	}
	slices.SortFunc(m.Report.Transports, func(a, b TransportRow) int {
		return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), cmp.Compare(a.Transport, b.Transport))
	})
}

func sortedCells(cells map[[2]int]Cell) []Cell {
	all := make([]Cell, 0, len(cells))
	for _, c := range cells {
		all = append(all, c)
	}
	slices.SortFunc(all, func(a, b Cell) int { return cmp.Or(cmp.Compare(a.From, b.From), cmp.Compare(a.To, b.To)) })
	return all
}

// grouped returns the cells of groups of width ranks, so that there are at most so many. place is where a rank has its
// place in the order in which ranks are put into groups. A group is named by its first place.
func grouped(cells []Cell, ranks, most int, place func(rank int) int) (fewer []Cell, width int) {
	width = 1
	if len(cells) > most {
		for groups := ranks; groups*groups > most; groups = (ranks + width - 1) / width {
			width++
		}
	}
	sums := map[[2]int]Cell{}
	for _, c := range cells {
		k := [2]int{place(c.From) / width * width, place(c.To) / width * width}
		s := sums[k]
		sums[k] = Cell{k[0], k[1], s.Messages + c.Messages, s.Bytes + c.Bytes}
	}
	return sortedCells(sums), width
}

func (m *Merged) sumAlgorithms() {
	type way struct{ op, names string }
	rows := map[way]*AlgorithmRow{}
	for _, p := range m.parts {
		for _, a := range p.Algorithms {
			k := way{a.Op, a.Names}
			row := rows[k]
			if row == nil {
				if len(rows) == mostAlgorithms {
					continue
				}
				row = &AlgorithmRow{Op: a.Op, Algorithms: a.Names, From: a.Least, To: a.Most}
				rows[k] = row
			}
			row.From, row.To, row.Ranks = min(row.From, a.Least), max(row.To, a.Most), row.Ranks+1
		}
	}
	for _, row := range rows {
		m.Report.Algorithms = append(m.Report.Algorithms, *row)
	}
	slices.SortFunc(m.Report.Algorithms, func(a, b AlgorithmRow) int {
		return cmp.Or(cmp.Compare(a.Op, b.Op), cmp.Compare(a.From, b.From), cmp.Compare(a.Algorithms, b.Algorithms))
	})
}
