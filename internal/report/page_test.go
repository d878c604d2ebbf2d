package report

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// pageOf returns the page of a report, and the data in it.
func pageOf(t *testing.T, m *Merged) (page string, d pageData) {
	t.Helper()
	var b bytes.Buffer
	if err := m.Page(&b); err != nil {
		t.Fatal(err)
	}
	page = b.String()
	text := inside(t, page, `<script type="application/json" id="data">`, "</script>")
	if err := json.Unmarshal([]byte(text), &d); err != nil {
		t.Fatal(err)
	}
	return page, d
}

// inside is the text between two others.
func inside(t *testing.T, text, before, after string) string {
	t.Helper()
	_, rest, found := strings.Cut(text, before)
	inner, _, ended := strings.Cut(rest, after)
	if !found || !ended {
		t.Fatalf("the page has no %s", before)
	}
	return inner
}

// evil are names that would end the page's data, or begin a script or a comment, if they were not escaped.
var evil = []string{"</script><script>document.title='owned'</script>", "<!--<script>", "a\u2028b\u2029c",
	"{{script}}", `"><img src=x onerror="document.title='owned'">`, "\xff\xfe", "'; -->]]>", "${x}`\\", "&lt;b&gt;"}

// hostile are parts whose names come from evil.
func hostile() []*Part {
	parts := two()
	name := strings.Join(evil, " ")
	for _, p := range parts {
		p.Host, p.Transport, p.Program = name, name, name
		for i := range p.Sites {
			s := &p.Sites[i]
			s.Op, s.Func, s.File = name, name, name
		}
		for i := range p.Out {
			p.Out[i].Via = name
		}
		p.Algorithms = []Algorithm{{Op: name, Names: name}}
	}
	return parts
}

// Names that other processes have sent stay names: the page has its own script and no other, and only that is allowed
// to run.
func TestHostileNames(t *testing.T) {
	m, err := Merge(hostile())
	if err != nil {
		t.Fatal(err)
	}
	page, d := pageOf(t, m)
	want := strings.ToValidUTF8(strings.Join(evil, " "), "\ufffd\ufffd")
	if r := d.Report; r.Ranks[1].Host != want || r.Sites[0].Func != want || r.Transports[0].Transport != want ||
		r.Algorithms[0].Algorithms != want || r.Program != want {
		t.Errorf("the page has the names %q, want %q", []string{r.Ranks[1].Host, r.Sites[0].Func}, want)
	}
	for text, n := range map[string]int{"<script": 2, "</script": 2, "<style": 1, "<!--": 0, "<img": 0, "\u2028": 0} {
		if got := strings.Count(page, text); got != n {
			t.Errorf("%d times %q in the page, want %d", got, text, n)
		}
	}
	for _, script := range []string{inside(t, page, "<script>", "</script>"), inside(t, page, "<style>", "</style>")} {
		sum := sha256.Sum256([]byte(script))
		if hash := base64.StdEncoding.EncodeToString(sum[:]); !strings.Contains(page, "'sha256-"+hash+"'") {
			t.Errorf("the policy does not allow what begins with %.60q", script)
		}
	}
	if found := regexp.MustCompile(`(?:src|href)="(?:[^d]|d[^a])|@import|url\(`).FindString(page); found != "" {
		t.Errorf("the page needs another file: %q", found)
	}
}

// A name is as long as it may be.
func TestLongNames(t *testing.T) {
	parts := two()
	parts[1].Host = strings.Repeat("é", longestName)
	m, err := Merge(parts)
	if err != nil {
		t.Fatal(err)
	}
	if got := m.Report.Ranks[1].Host; len(got) > longestName+len("…") || !strings.HasSuffix(got, "é…") {
		t.Errorf("a name of %d bytes has become %q", 2*longestName, got)
	}
}

// crowd are the parts of n ranks with as many calls as they may keep. Every rank sends to every rank, and the sites
// are more than a report has.
func crowd(n int) []*Part {
	var parts []*Part
	var sites []Site
	for line := range 2 * mostSites {
		sites = append(sites, Site{Op: "Send", Kind: "send", Func: "example.org/program/solver.(*block).exchange",
			File: "/home/user/program/solver/exchange.go", Line: line, Calls: 2, Bytes: 16, Time: int64(line)})
	}
	for rank := range n {
		p := &Part{Rank: rank, Size: n, Host: fmt.Sprintf("host-%d", rank%16), Transport: "shm+tcp", End: 1e9,
			Calls: 5000, InCalls: 4e8, Unkept: 4000, CPU: 9e8, Memory: 1 << 30, Program: "crowd", Sites: sites}
		for i := range 64 {
			p.Sizes[i] = int64(i)
		}
		for i := range roomOf(n) {
			begin := int64(i)*1_900_000 + int64(rank)
			p.Events = append(p.Events, Event{Site: int32(i % len(p.Sites)), Peer: int32((rank + 1 + i) % n), Begin: begin,
				End: begin + 1_000_000 + int64(i%7)*100_000, Bytes: 123_456, Collective: i%2 == 0})
			p.Transfers = append(p.Transfers, Transfer{Message{Sent, (rank + 1) % n, i, 0, 123_456}, int32(i)},
				Transfer{Message{Received, (rank + n - 1) % n, i, 0, 123_456}, int32(i)})
		}
		for peer := range n {
			p.Out = append(p.Out, Flow{peer, 1000, 123_456_789, "tcp"})
		}
		parts = append(parts, p)
	}
	return parts
}

// The page and report.json of a thousand ranks are bounded, with all sums in them.
func TestPageIsBounded(t *testing.T) {
	const ranks = 1000
	m, err := Merge(crowd(ranks))
	if err != nil {
		t.Fatal(err)
	}
	page, d := pageOf(t, m)
	text, err := json.MarshalIndent(&m.Report, "", "\t")
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("the page has %d bytes, report.json %d", len(page), len(text))
	if len(page) > 8<<20 || len(text) > 16<<20 {
		t.Errorf("the page has %d bytes, report.json %d", len(page), len(text))
	}
	if note := m.Report.Timeline.Note; !strings.Contains(note, "; 4,000,000 later ones") {
		t.Errorf("the note is %q", note)
	}
	for _, r := range []*Report{d.Report, &m.Report} {
		var cells, calls, sites int64
		for _, c := range r.Matrix {
			cells += c.Bytes
		}
		for _, s := range r.Sites {
			calls += s.Calls
			sites += s.Time
		}
		if want := int64(ranks * ranks * 123_456_789); cells != want || r.CellRanks < 2 {
			t.Errorf("the matrix has %d bytes, want %d, of %d ranks a cell", cells, want, r.CellRanks)
		}
		if calls != ranks*2*mostSites*2 || sites != ranks*mostSites*(2*mostSites-1) || len(r.Sites) != mostSites+1 {
			t.Errorf("%d sites have %d calls and %d ns", len(r.Sites), calls, sites)
		}
		if len(r.Waits) != mostWaits || r.OtherWaits.Rows == 0 || r.OtherWaits.Time == 0 {
			t.Errorf("%d waits, and the others are %+v", len(r.Waits), r.OtherWaits)
		}
	}
	line := &d.Timeline
	if !line.Sampled || len(line.Arrows) == 0 || len(line.Arrows) > pageArrows*arrowFields ||
		line.AllArrows != int64(len(m.arrows)) {
		t.Errorf("sampled %v, %d numbers of arrows, of %d arrows", line.Sampled, len(line.Arrows), line.AllArrows)
	}
	for rank, calls := range line.Calls {
		if len(calls) > (pageEvents/ranks+1)*callFields {
			t.Fatalf("rank %d has %d numbers of calls", rank, len(calls))
		}
		var of int64
		for i := 0; i < len(calls); i += callFields {
			if calls[i] == joined {
				of += calls[i+3]
			} else {
				of++
			}
		}
		if of != int64(len(m.parts[rank].Events)) {
			t.Fatalf("rank %d has %d calls in the page, want %d", rank, of, len(m.parts[rank].Events))
		}
	}
}

// The clocks of hosts are moved where the exchange that has compared them was not exact: no message is received before
// it is sent.
func TestNoArrowGoesBack(t *testing.T) {
	for _, skew := range []int64{0, 150, 250, 100_000, -100_000} {
		parts := two()
		parts[1].Offset, parts[1].Drift = parts[1].Offset-skew, parts[1].Drift-skew
		m, err := Merge(parts)
		if err != nil {
			t.Fatal(err)
		}
		_, d := pageOf(t, m)
		arrows, strange := d.Timeline.Arrows, m.Report.Timeline.Strange
		if len(arrows) != arrowFields || arrows[3] < 0 || strange != 0 {
			t.Errorf("with clocks %d ns apart the arrows are %v, %d are left out", skew, arrows, strange)
		}
	}
}

// Three hosts are moved one after the other, in both directions; messages that no clocks explain move none.
func TestClocksFitMessages(t *testing.T) {
	const hour = 3600e9
	site := []Site{{Op: "Send", Kind: "send"}}
	at := func(rank int, offset, begin int64, moved ...Transfer) *Part {
		return &Part{Rank: rank, Size: 3, Begin: begin, End: begin + 1000, Offset: offset, Drift: offset, Sites: site,
			Events:    []Event{{Begin: begin + 100, End: begin + 200}, {Begin: begin + 300, End: begin + 400}},
			Transfers: moved}
	}
	move := func(way Way, peer int, event int32) Transfer {
		return Transfer{Message{Way: way, Peer: peer, Tag: 7, Bytes: 8}, event}
	}
	for _, back := range []bool{false, true} {
		// Rank 0 sends to 1 in its first call, and 1 sends to 2 in its second one. Their clocks are hours too early.
		parts := []*Part{at(0, 0, 0, move(Sent, 1, 0)), at(1, -hour, 0, move(Received, 0, 0), move(Sent, 2, 1),
			move(Sent, 1, 1), move(Received, 1, 0)), // and to itself, too early for any clock

			at(2, -3*hour, 0, move(Received, 1, 0))}
		if back { // and 2 sends to 0, which has it in the call in which it sends: before 2 can have anything
			parts[2].Transfers = append(parts[2].Transfers, move(Sent, 0, 1))
			parts[0].Transfers = append(parts[0].Transfers, move(Received, 2, 0))
		}
		m, err := Merge(parts)
		if err != nil {
			t.Fatal(err)
		}
		tl := m.Report.Timeline
		if !back && (len(m.arrows) != 2 || tl.Strange != 1 || parts[0].Events[0].Begin != 100) {
			t.Errorf("there are %d arrows of 2, %d are left out, and rank 0's clock has moved by %d", len(m.arrows), tl.Strange,
				parts[0].Events[0].Begin-100)
		}
		if back && (parts[1].Events[0].Begin != 100-hour || tl.Strange != 3 || len(m.arrows) != 1) {
			t.Errorf("clocks that cannot fit have moved: %+v, %d arrows, %d are left out", parts[1].Events[0], len(m.arrows),
				tl.Strange)
		}
	}
}

// A call that waits for several late messages waits for the last of them, and not for the sum.
func TestWaitForSeveral(t *testing.T) {
	parts := two()
	third := &Part{Rank: 2, Size: 3, Begin: 1000, End: 5000, Sites: parts[0].Sites[:1:1],
		Events:    []Event{{Site: 0, Peer: 1, Begin: 2150, End: 2160, Bytes: 8}},
		Transfers: []Transfer{{Message{Sent, 1, 4, 0, 8}, 0}}}
	parts[1].Transfers = append(parts[1].Transfers, Transfer{Message{Received, 2, 4, 0, 8}, 0})
	m, err := Merge(append(parts, third))
	if err != nil {
		t.Fatal(err)
	}
	if got := m.Report.Ranks[1].Waiting; got != 650 {
		t.Errorf("rank 1 waits for %d ns, want 650", got)
	}
	if w := m.Report.Waits; len(w) < 2 || w[0].Time != 650 || w[1].Time != 500 {
		t.Errorf("the waits are %+v", w)
	}
}

// The page says who waits for whom, how long and where, and what to do.
func TestFindings(t *testing.T) {
	m, err := Merge(two())
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"Rank 1 waits 12 % of its time (0.5 µs) in Recv at a.go:7 for rank 0's Send at a.go:7. Send earlier there, or " +
			"receive later: Irecv, compute, Wait.",
		"Rank 0 waits 8 % of its time (0.3 µs) in Barrier at a.go:7 for rank 1, which makes the call last. Give it less " +
			"to do before, or begin the call early by its nonblocking form.",
	}
	if !slices.Equal(m.Report.Findings, want) {
		t.Errorf("the findings are\n%s\nwant\n%s", strings.Join(m.Report.Findings, "\n"), strings.Join(want, "\n"))
	}
	for text, ranks := range map[string][]int{"Rank 3": {3}, "Ranks 0–3": {0, 1, 2, 3}, "Ranks 0 and 1": {0, 1},
		"Ranks 0–2, 5 and 7": {0, 1, 2, 5, 7}, "Ranks 0, 2, 4, 6 and 2 others": {0, 2, 4, 6, 8, 10}} {
		if got := ranksInWords(ranks); got != text {
			t.Errorf("%v: %q, want %q", ranks, got, text)
		}
	}
	quiet := two()
	quiet[0].Events, quiet[1].Events, quiet[0].Transfers, quiet[1].Transfers = nil, nil, nil, nil
	quiet[1].InCalls = 500
	if m, err = Merge(quiet); err != nil || len(m.Report.Findings) != 1 ||
		!strings.HasPrefix(m.Report.Findings[0], "At no line") {
		t.Errorf("without waits it finds %q (%v)", m.Report.Findings, err)
	}
	quiet[1].InCalls = 3500
	if m, err = Merge(quiet); err != nil ||
		!strings.HasPrefix(m.Report.Findings[0], "Rank 0 computes 1.8 times as long") {
		t.Errorf("of an uneven job it finds %q (%v)", m.Report.Findings, err)
	}
}

// The matrix puts the ranks of a host next to each other.
func TestHostsAreBlocks(t *testing.T) {
	var parts []*Part
	for rank := range 4 {
		parts = append(parts, &Part{Rank: rank, Size: 4, Host: string(rune('a' + rank%2)), End: 1,
			Out: []Flow{{(rank + 2) % 4, 1, int64(10 + rank), ""}}})
	}
	m, err := Merge(parts)
	if err != nil {
		t.Fatal(err)
	}
	_, d := pageOf(t, m)
	if want := []Cell{{0, 1, 1, 10}, {1, 0, 1, 12}, {2, 3, 1, 11}, {3, 2, 1, 13}}; !slices.Equal(d.Report.Matrix, want) ||
		!slices.Equal(d.Order, []int{0, 2, 1, 3}) {
		t.Errorf("the order is %v, the matrix %v", d.Order, d.Report.Matrix)
	}
	if want := []Cell{{0, 2, 1, 10}, {1, 3, 1, 11}, {2, 0, 1, 12}, {3, 1, 1, 13}}; !slices.Equal(m.Report.Matrix, want) {
		t.Errorf("report.json has the matrix %v", m.Report.Matrix)
	}
}
