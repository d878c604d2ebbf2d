package report

import (
	"bufio"
	"cmp"
	"crypto/sha256"
	_ "embed" // the parts of the page
	"encoding/base64"
	"encoding/json"
	"io"
	"slices"
	"strings"
)

//go:embed page.html
var pageText string

//go:embed page.css
var pageStyle string

//go:embed page.js
var pageScript string

// Limits of a page, which opens in a browser whatever the job was.
const (
	pageEvents = 100_000 // of all ranks together
	leastDrawn = 6       // of each rank
	pageArrows = 30_000
	pageCells  = 1 << 14
)

// pageData is the JSON of a page.
type pageData struct {
	Report   *Report      `json:"report"`
	Order    []int        `json:"order"` // of the matrix: the ranks of a host follow each other
	Timeline pageTimeline `json:"timeline"`
}

// pageTimeline is what the page draws of the timeline. Times are nanoseconds after the first rank's begin.
type pageTimeline struct {
	Length    int64     `json:"length"`
	Sampled   bool      `json:"sampled"`
	Calls     [][]int64 `json:"calls"`  // of each rank, callFields each
	Arrows    []int64   `json:"arrows"` // arrowFields each
	AllCalls  int64     `json:"all_calls"`
	AllArrows int64     `json:"all_arrows"`
}

// A call is its site (joined: several calls), its begin after the last one's, its length, bytes, peer, and how long it
// waits for another rank at its begin. Of joined calls there are their number, and the time in them, instead of bytes
// and peer.
const (
	callFields  = 6
	arrowFields = 6 // from, to, begin, length, bytes, tag
	joined      = -1
)

// Page writes the report as a page, which needs no other file and no network. Its policy allows no script but its own:
// names of functions, files and hosts come from other processes, and cannot become a script.
func (m *Merged) Page(w io.Writer) error {
	data, err := json.Marshal(m.page()) // <, >, & and the separators of lines are escaped
	if err != nil {
		return err
	}
	hash := func(text string) string {
		sum := sha256.Sum256([]byte(text))
		return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
	}
	policy := "default-src 'none'; base-uri 'none'; form-action 'none'; img-src data:; script-src " + hash(pageScript) +
		"; style-src " + hash(pageStyle)
	b := bufio.NewWriter(w)
	_, err = strings.NewReplacer("{{policy}}", policy, "{{style}}", pageStyle, "{{script}}", pageScript, "{{data}}",
		string(data)).WriteString(b, pageText)
	return cmp.Or(err, b.Flush())
}

func (m *Merged) page() *pageData {
	shown := m.Report
	d := &pageData{Report: &shown, Order: m.byHost()}
	place := make([]int, len(d.Order))
	for i, rank := range d.Order {
		place[rank] = i
	}
	shown.Matrix, shown.CellRanks = grouped(m.cells, len(m.parts), pageCells, func(rank int) int { return place[rank] })
	t := &d.Timeline
	t.Length, t.AllArrows = m.end-m.begin, int64(len(m.arrows))
	room := max(leastDrawn, pageEvents/max(1, len(m.parts)))
	for rank, p := range m.parts {
		calls := m.drawn(rank, room)
		t.Sampled = t.Sampled || len(p.Events) > room
		t.AllCalls += int64(len(p.Events))
		flat := make([]int64, 0, callFields*len(calls))
		at := m.begin
		for _, c := range calls {
			flat = append(flat, int64(c.site), c.begin-at, c.end-c.begin, c.bytes, c.peer, c.waited)
			at = c.begin
		}
		t.Calls = append(t.Calls, flat)
	}
	arrows := slices.Clone(m.arrows)
	slices.SortStableFunc(arrows, func(a, b arrow) int { return cmp.Compare(a.sendBegin, b.sendBegin) })
	step := (len(arrows) + pageArrows - 1) / pageArrows
	for i := 0; i < len(arrows); i += step {
		a := arrows[i]
		t.Arrows = append(t.Arrows, int64(a.from), int64(a.to), a.sendBegin-m.begin, a.recvEnd-a.sendBegin, a.bytes,
			int64(a.tag))
	}
	return d
}

// byHost returns the ranks in the order of their hosts, which are in the order of their first ranks.
func (m *Merged) byHost() []int {
	hosts := map[string]int{}
	order := make([]int, len(m.parts))
	for rank, p := range m.parts {
		order[rank] = rank
		if _, known := hosts[p.Host]; !known {
			hosts[p.Host] = len(hosts)
		}
	}
	slices.SortStableFunc(order, func(a, b int) int {
		return cmp.Compare(hosts[m.parts[a].Host], hosts[m.parts[b].Host])
	})
	return order
}

// drawnCall is a call that the page draws, or several that are drawn as one.
type drawnCall struct {
	site       int
	begin, end int64
	// Of joined calls: their number, and the time in them.
	bytes, peer int64
	waited      int64
}

// drawn returns at most room calls of a rank, in the order in which they began. Where there are more, a third of the
// room is for the longest ones. The others are joined, as many as follow each other within a period.
func (m *Merged) drawn(rank, room int) []drawnCall {
	events := m.parts[rank].Events
	order := make([]int, len(events)) // by begin: the events are in the order of their ends
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(events[a].Begin, events[b].Begin) })
	long := longest(events, room)
	period := (m.end - m.begin) / max(1, int64(room/3)) // of which a part may be cut at both ends
	var all []drawnCall
	var joining bool
	var last int64
	for _, i := range order {
		e := &events[i]
		if long[i] {
			all = append(all, drawnCall{m.siteOf[rank][e.Site], e.Begin, e.End, e.Bytes, int64(e.Peer),
				m.waits.ofEvent[rank][i]})
			joining = false
			continue
		}
		now := (e.Begin - m.begin) / max(1, period+1)
		if !joining || now != last {
			all = append(all, drawnCall{site: joined, begin: e.Begin})
		}
		joining, last = true, now
		c := &all[len(all)-1]
		c.end = max(c.end, e.End)
		c.bytes++
		c.peer += e.End - e.Begin
	}
	return all
}

// longest reports which events are drawn one by one: all of them, or a third of the room.
func longest(events []Event, room int) []bool {
	is := make([]bool, len(events))
	order := make([]int, len(events))
	for i := range order {
		order[i] = i
	}
	n := len(events)
	if n > room {
		slices.SortStableFunc(order, func(a, b int) int {
			return cmp.Compare(events[b].End-events[b].Begin, events[a].End-events[a].Begin)
		})
		n = room / 3
	}
	for _, i := range order[:n] {
		is[i] = true
	}
	return is
}
