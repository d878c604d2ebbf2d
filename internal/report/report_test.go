package report

import (
	"bytes"
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// two are the parts of two ranks, whose clocks differ by an hour: rank 1 waits 500 ns for a message of rank 0, and rank
// 0 then 300 ns for rank 1 in a collective call.
func two() []*Part {
	const hour = 3600_000_000_000
	timeOf := map[string]int64{"Send": 100, "Recv": 700, "Barrier": 300}
	site := func(op, kind string) Site {
		return Site{Op: op, Kind: kind, Func: "main.main", File: "a.go", Line: 7, Calls: 1, Time: timeOf[op]}
	}
	a := &Part{Rank: 0, Host: "a", Begin: 1000, End: 5000,
		Sites: []Site{site("Send", "send"), site("Barrier", "collective")},
		Events: []Event{{Site: 0, Peer: 1, Begin: 2000, End: 2100, Bytes: 8},
			{Site: 1, Peer: -1, Begin: 3000, End: 3400, Collective: true}},
		Transfers: []Transfer{{Message{Sent, 1, 4, 0, 8}, 0}}, Out: []Flow{{1, 1, 8, "tcp"}}}
	b := &Part{Rank: 1, Host: "b", Begin: 1000 + hour, End: 5000 + hour, Offset: -hour, Drift: -hour,
		Sites: []Site{site("Recv", "recv"), site("Barrier", "collective")},
		Events: []Event{{Site: 0, Peer: 0, Begin: 1500 + hour, End: 2200 + hour, Bytes: 8},
			{Site: 1, Peer: -1, Begin: 3300 + hour, End: 3400 + hour, Collective: true}},
		Transfers: []Transfer{{Message{Received, 0, 4, 0, 8}, 0}}}
	a.Sizes[4], a.Calls, b.Calls, a.InCalls, b.InCalls = 1, 2, 2, 500, 800
	return []*Part{a, b}
}

func TestMerge(t *testing.T) {
	m, err := Merge(two())
	if err != nil {
		t.Fatal(err)
	}
	var sites []string
	for i := range m.Report.Sites {
		sites = append(sites, m.siteInWords(i))
	}
	if want := []string{"Recv at a.go:7", "Barrier at a.go:7", "Send at a.go:7"}; !slices.Equal(sites, want) {
		t.Errorf("sites: %q, want %q", sites, want)
	}
	want := []WaitRow{{1, 0, lateSender, 0, 2, 1, 500}, {0, 1, lateCall, 1, 1, 1, 300}}
	if !slices.Equal(m.Report.Waits, want) {
		t.Errorf("waits: %+v, want %+v", m.Report.Waits, want)
	}
	if r := m.Report; !slices.Equal(r.Matrix, []Cell{{0, 1, 1, 8}}) || r.CellRanks != 1 ||
		!slices.Equal(r.Transports, []TransportRow{{"tcp", 1, 1, 8}}) {
		t.Errorf("matrix %+v of %d ranks a cell, transports %+v", r.Matrix, r.CellRanks, r.Transports)
	}
	if r := m.Report.Ranks; r[0].Waiting != 300 || r[1].Waiting != 500 || r[1].Computing != 3200 {
		t.Errorf("ranks: %+v", r)
	}
	if s := m.Report.Sizes; len(s) != 1 || s[0] != (SizeRow{8, 15, 1}) {
		t.Errorf("sizes: %+v", s)
	}
	if m.Report.Imbalance != float64(3500)*2/(3500+3200) {
		t.Errorf("imbalance: %v", m.Report.Imbalance)
	}
	var b bytes.Buffer
	m.Trace(&b)
	var trace struct {
		TraceEvents []struct {
			Ph   string
			Pid  int
			Ts   float64
			Name string
			ID   int
		}
	}
	if err := json.Unmarshal(b.Bytes(), &trace); err != nil {
		t.Fatalf("%v\n%s", err, &b)
	}
	var at []float64
	for _, e := range trace.TraceEvents {
		if e.Ph == "s" || e.Ph == "f" {
			at = append(at, e.Ts, float64(e.Pid))
		}
	}
	if len(at) != 4 || at[0] != 1 || at[1] != 0 || at[2] != 1.2 || at[3] != 1 {
		t.Errorf("the message is drawn at %v\n%s", at, &b)
	}
}

// Communicators of other ranks may have one context: a rank waits in a collective call for a rank of its own. The ranks
// 0 and 1 have one, and 2 and 3.
func TestCollectiveCallsOfOneContext(t *testing.T) {
	var parts []*Part
	for rank, begin := range []int64{1000, 1200, 1100, 1900} {
		parts = append(parts, &Part{Rank: rank, Begin: 500, End: 2500,
			Sites:  []Site{{Op: "Barrier", Kind: "collective", Calls: 1}},
			Events: []Event{{Peer: -1, Begin: begin, End: 2000, Context: 8, Collective: true, First: int32(rank / 2 * 2)}}})
	}
	m, err := Merge(parts)
	if err != nil {
		t.Fatal(err)
	}
	want := []WaitRow{{2, 3, lateCall, 0, 0, 1, 800}, {0, 1, lateCall, 0, 0, 1, 200}}
	if !slices.Equal(m.Report.Waits, want) {
		t.Errorf("waits: %+v, want %+v", m.Report.Waits, want)
	}
}

// What a part of another process says is checked before it is used.
func TestHostileParts(t *testing.T) {
	for name, change := range map[string]func(p *Part){
		"site":       func(p *Part) { p.Events[0].Site = 2 },
		"below":      func(p *Part) { p.Events[0].Site = -1 },
		"time":       func(p *Part) { p.Events[0].End = 0 },
		"event":      func(p *Part) { p.Transfers[0].Event = 2 },
		"peer":       func(p *Part) { p.Transfers[0].Peer = 2 },
		"flow":       func(p *Part) { p.In = []Flow{{Peer: -1}} },
		"other rank": func(p *Part) { p.Rank = 0 },
		"end":        func(p *Part) { p.End = 0 },
		"events":     func(p *Part) { p.Events = make([]Event, mostOfRank+1) },
		"flows":      func(p *Part) { p.Out = make([]Flow, 5) },
		"bytes":      func(p *Part) { p.Out = []Flow{{Bytes: -1}} },
		"sum":        func(p *Part) { p.Sites[0].Time = -1 },
		"length":     func(p *Part) { p.Sizes[64] = 1 }, // the page would count up to it without end
		"lengths":    func(p *Part) { p.Sizes[3] = -1 },
	} {
		parts := two()
		change(parts[1])
		if _, err := Merge(parts); err == nil || !strings.Contains(err.Error(), "rank 1") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := Decode([]byte("nothing")); err == nil {
		t.Error("a part that is none is decoded")
	}
}

// The timeline is bounded, and the sums are not.
func TestTimelineIsBounded(t *testing.T) {
	r := newRecorder(0, mostTogether, "", false)
	const calls = 2 * leastOfRank
	for range calls {
		r.Record(&Call{Op: "Send", Kind: "send", End: 2, Bytes: 3}, []Message{{Way: Sent, Peer: 1, Bytes: 3}})
	}
	p := r.Part()
	if len(p.Events) != leastOfRank || len(p.Transfers) != leastOfRank || p.Unkept != calls-leastOfRank {
		t.Errorf("%d events, %d messages, %d not kept", len(p.Events), len(p.Transfers), p.Unkept)
	}
	if len(p.Sites) != 1 || p.Sites[0].Calls != calls || p.Sites[0].Bytes != 3*calls || p.Sites[0].Time != 2*calls ||
		p.Out[0] != (Flow{1, calls, 3 * calls, ""}) || p.Sizes[2] != calls {
		t.Errorf("the sums are %+v, %+v", p.Sites, p.Out)
	}
}

// calls calls a function of the library, or one of the program that calls it.
//
//go:noinline
func calls(record func(*Call, []Message), c *Call) { record(c, nil) }

// A call counts for its own line and operation, also where one line calls the library by a function value, and other
// functions of the program by another one.
func TestLinesOfCalls(t *testing.T) {
	r := newRecorder(0, 2, "", false)
	send, recv := &Call{Op: "Send"}, &Call{Op: "Recv"}
	for range 3 {
		calls(r.Record, send)
		calls(func(c *Call, m []Message) { r.Record(c, m) }, send)
		calls(r.Record, recv)
		r.Record(send, nil)
	}
	got := map[string]int64{}
	for _, s := range r.Part().Sites {
		got[s.Op+" in "+s.Func[strings.LastIndex(s.Func, "/"):]] += s.Calls
	}
	want := map[string]int64{"Send in /report.calls": 3, "Send in /report.TestLinesOfCalls.func1": 3,
		"Recv in /report.calls": 3, "Send in /report.TestLinesOfCalls": 3}
	if !maps.Equal(got, want) {
		t.Errorf("the calls are %v, want %v", got, want)
	}
}

// A line gets its calls also after another one has taken its slot.
func TestLinesOfOneSlot(t *testing.T) {
	r := newRecorder(0, 2, "", false)
	other := r.site(Site{Op: "Send", Line: 1})
	for turn := range 3 {
		r.Record(&Call{Op: "Send"}, nil)
		if turn > 0 {
			continue
		}
		for key := range r.sites { // as a call would whose return address has this slot, by the same function of the library
			at := slot(key.pc)
			r.lines.pcs[at], r.lines.more[at].at = key.pc+1, other
		}
	}
	if s := r.Part().Sites; len(s) != 2 || s[other].Calls != 0 || s[1-other].Calls != 3 {
		t.Errorf("the lines have %+v", s)
	}
}

// descend makes a call at the end of each way through its two lines.
func descend(r *Recorder, c *Call, depth int) {
	if depth == 0 {
		r.Record(c, nil)
		return
	}
	descend(r, c, depth-1)
	descend(r, c, depth-1)
}

// What a recorder keeps of the lines of a program grows with the lines, and not with the ways to them.
func TestWaysToALine(t *testing.T) {
	r := newRecorder(0, 2, "", false)
	const depth = 12
	descend(r, &Call{Op: "Send"}, depth)
	if kept := len(r.sites) + len(r.library); kept > callersDeep || len(r.part.Sites) != 1 ||
		r.part.Sites[0].Calls != 1<<depth {
		t.Errorf("%d addresses are kept, and %+v", kept, r.part.Sites)
	}
}

// BenchmarkRecord is what a call costs more with a report, but for the hooks: on the timeline, and later.
func BenchmarkRecord(b *testing.B) {
	for _, kept := range []bool{true, false} {
		b.Run(map[bool]string{true: "kept", false: "sums"}[kept], func(b *testing.B) {
			r := New(0, 2, "")
			if !kept {
				r.room = 0
			}
			moved := []Message{{Way: Sent, Peer: 1, Tag: 7, Bytes: 8}}
			c := Call{Op: "Send", Kind: "send", Bytes: 8, Peer: 1}
			b.ReportAllocs()
			for b.Loop() {
				if kept && r.calls == r.room {
					b.StopTimer()
					r = New(0, 2, "")
					b.StartTimer()
				}
				c.Begin = r.Ticks()
				c.End = r.Ticks()
				r.Record(&c, moved)
			}
		})
	}
}

// What has been recorded comes back, with messages that are in the entry of their call and others.
func TestPartHasWhatWasRecorded(t *testing.T) {
	r := newRecorder(0, 4, "", false)
	begin := r.Part().Begin // nothing yet
	r = newRecorder(0, 4, "", false)
	var want []Event
	var messages []Transfer
	const calls = 3 * entriesEach
	for i := range calls {
		c := Call{Op: "Sendrecv", Kind: "sendrecv", Begin: r.Ticks(), Peer: 1, Bytes: 8, Context: 6, Collective: i%3 == 0,
			First: i % 2}
		c.End = r.Ticks()
		moved := []Message{{Sent, 1, i, 6, 8}, {Received, 2, i, 6, 8}, {Sent, 3, i, 6, 5}}[:i%4]
		r.Record(&c, moved)
		want = append(want, Event{0, 1, c.Begin, c.End, 8, 6, c.Collective, int32(i % 2)})
		for _, m := range moved {
			messages = append(messages, Transfer{m, int32(i)})
		}
	}
	p := r.Part()
	if !slices.Equal(p.Events, want) || !slices.Equal(p.Transfers, messages) || p.Calls != calls || p.Begin < begin {
		t.Errorf("%d of %d events and %d of %d messages, or other ones, of %d calls", len(p.Events), len(want),
			len(p.Transfers), len(messages), p.Calls)
	}
	if size := reflect.TypeFor[entry]().Size(); size != entryBytes {
		t.Errorf("an entry has %d bytes, and %d count for the bound", size, entryBytes)
	}
}

// A message keeps its own peer, communicator and length where its call has others: a Sendrecv has two messages, and one
// wait is for requests of several communicators.
func TestMessagesUnlikeTheirCalls(t *testing.T) {
	r := newRecorder(0, 4, "", false)
	c := Call{Op: "Sendrecv", Kind: "sendrecv", Begin: r.Ticks(), Peer: 1, Bytes: 8, Context: 6}
	c.End = c.Begin
	var want []Transfer
	for i, m := range []Message{{Received, 1, 7, 6, 8}, {Sent, 2, 7, 6, 8}, {Sent, 1, 7, 5, 8}, {Sent, 1, 7, 6, 3}} {
		r.Record(&c, []Message{m})
		want = append(want, Transfer{m, int32(i)})
	}
	empty := c // both of whose messages are like it
	empty.Bytes = 0
	both := []Message{{Sent, 1, 3, 6, 0}, {Received, 1, 4, 6, 0}}
	r.Record(&empty, both)
	calls := len(want) + 1
	want = append(want, Transfer{both[0], int32(calls - 1)}, Transfer{both[1], int32(calls - 1)})
	r.message(&Message{Written, 3, 0, 6, 5}, 0, r.entries()[0]) // no message on the timeline, and one in the sums
	p := r.Part()
	if sums := []Flow{{1, 3, 11, ""}, {2, 1, 8, ""}, {3, 1, 5, ""}}; !slices.Equal(p.Out, sums) || p.In != nil {
		t.Errorf("the sums are %v and %v, want %v", p.Out, p.In, sums)
	}
	for i, e := range p.Events {
		of, site := c, int32(0)
		if i == calls-1 {
			of, site = empty, 1
		}
		if e != (Event{Site: site, Peer: 1, Begin: c.Begin, End: c.End, Bytes: of.Bytes, Context: 6}) {
			t.Errorf("a call is recorded as %+v", e)
		}
	}
	if len(p.Events) != calls || !slices.Equal(p.Transfers, want) {
		t.Errorf("%d calls, the messages %+v, want %+v", len(p.Events), p.Transfers, want)
	}
}

// Ticks become times of the host's clock: a call lies between what the clock has said before and after it.
func TestTicksAreTimes(t *testing.T) {
	for _, ticks := range []bool{false, hasTicks()} {
		r := newRecorder(0, 2, "", ticks)
		const calls = 100
		var before, after [calls]int64
		for i := range calls {
			before[i] = r.Now()
			c := Call{Op: "Send", Kind: "send", Begin: r.Ticks()}
			for c.End = c.Begin; r.Now() < before[i]+20_000; c.End = r.Ticks() {
			}
			after[i] = r.Now()
			r.Record(&c, nil)
		}
		p := r.Part()
		const blur = 10_000 // ns: the moments from which the scale comes are not exact
		var sum, longest int64
		for i, e := range p.Events {
			if e.Begin < before[i]-blur || e.End > after[i]+blur || e.End < e.Begin {
				t.Errorf("ticks %v: a call of %d…%d was recorded as %d…%d", ticks, before[i], after[i], e.Begin, e.End)
			}
			sum, longest = sum+e.End-e.Begin, max(longest, e.End-e.Begin)
		}
		s := p.Sites[0]
		if p.End < p.Begin || p.InCalls != s.Time || max(sum-s.Time, s.Time-sum) > calls || max(longest-s.Longest,
			s.Longest-longest) > 1 {
			t.Errorf("ticks %v: the sums are %+v, %d in calls; the calls took %d, the longest %d", ticks, s, p.InCalls, sum,
				longest)
		}
	}
}

// A counter that goes backwards makes no times that cannot be.
func TestTicksGoBackwards(t *testing.T) {
	r := newRecorder(0, 2, "", false)
	r.ticks, r.began.ticks = true, 1<<62 // in ten thousand years
	r.Record(&Call{Op: "Send", Kind: "send", Begin: 9, End: 5}, nil)
	p := r.Part()
	if _, err := Merge([]*Part{p, {Rank: 1}}); err != nil || p.Sites[0].Time != 0 || p.Events[0].End != p.Begin {
		t.Errorf("%+v, %v", p, err)
	}
}

// What a recorder and its twin have recorded is one part: the sums, and one timeline in the order of the calls' ends.
func TestTwin(t *testing.T) {
	r := newRecorder(0, 3, "", false)
	both := []*Recorder{r, r.Twin()}
	begin := r.began.ticks
	calls(both[1].Record, &Call{Op: "Recv", Begin: begin, End: begin + 14})
	for i := range 6 {
		c := &Call{Op: "Send", Kind: "send", Begin: begin + int64(i), End: begin + int64(10*i+9), Peer: 1, Bytes: 8}
		both[i/2%2].Record(c, []Message{{Sent, 1, i, 0, 8}, {Sent, 2, i, 0, 3}, {Read, 2, 0, 0, 1}})
	}
	p := r.Part()
	var ends []int64
	for _, e := range p.Events {
		ends = append(ends, e.End-p.Begin)
	}
	if want := []int64{9, 14, 19, 29, 39, 49, 59}; !slices.Equal(ends, want) {
		t.Errorf("the calls end at %d, want %d", ends, want)
	}
	var tags, of []int
	for _, m := range p.Transfers {
		tags, of = append(tags, m.Tag), append(of, int(m.Event))
	}
	if !slices.Equal(tags, []int{0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5}) ||
		!slices.Equal(of, []int{0, 0, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6}) {
		t.Errorf("messages with the tags %d of the calls %d", tags, of)
	}
	if len(p.Sites) != 2 || p.Sites[0].Calls != 6 || p.Sites[0].Time != 9+18+27+36+45+54 || p.Sites[0].Longest != 54 ||
		p.Sites[0].Bytes != 48 || p.Sites[1].Op != "Recv" || p.Sites[1].Longest != 14 ||
		p.Sites[p.Events[1].Site].Op != "Recv" || p.Calls != 7 {
		t.Errorf("the sums are %+v", p.Sites)
	}
	if !slices.Equal(p.Out, []Flow{{1, 6, 48, ""}, {2, 6, 18, ""}}) || !slices.Equal(p.In, []Flow{{2, 6, 6, ""}}) ||
		p.Sizes[4] != 6 || p.Sizes[2] != 6 {
		t.Errorf("out %v, in %v, sizes %v", p.Out, p.In, p.Sizes)
	}
}

// The timeline of a recorder and its twin ends where one of them has no more room. It has at most the calls of one.
func TestTwinIsBounded(t *testing.T) {
	const size = mostTogether / leastOfRank
	for _, c := range []struct {
		messages      int // of a call
		first, second int // calls of the two; the second begins with the hundredth of the first
		later         int // calls of the first, from 400 on
		last          int64
	}{
		{0, 300, 10, 0, 246}, // ends: 256 calls, with 10 that the second has made meanwhile
		{0, 10, 300, 0, 345},
		{3, 200, 90, 0, 170}, // messages: 512, and the call 171 has some more
		{3, 1, 200, 10, 269}, // so it is in the second; 171 calls before it
	} {
		r := newRecorder(0, size, "", false)
		record := func(r *Recorder, at int) {
			end := r.began.ticks + int64(at)
			r.Record(&Call{Op: "Send", Begin: end, End: end, Peer: -1}, make([]Message, c.messages))
		}
		for i := range c.first {
			record(r, i+1)
		}
		for i := range c.second {
			record(r.Twin(), 100+i)
		}
		for i := range c.later {
			record(r, 400+i)
		}
		p := r.Part()
		last := int64(0)
		for _, e := range p.Events {
			if e.End-p.Begin < last {
				t.Errorf("%+v: a call that ends at %d comes after a call that ends at %d", c, e.End-p.Begin, last)
			}
			last = e.End - p.Begin
		}
		all := c.first + c.second + c.later
		if last != c.last || int(p.Unkept) != all-len(p.Events) || p.Calls != int64(all) ||
			len(p.Events) > leastOfRank || len(p.Transfers) > 2*leastOfRank {
			t.Errorf("%+v: %d calls, the last at %d, %d messages, %d calls not kept", c, len(p.Events), last,
				len(p.Transfers), p.Unkept)
		}
	}
}
