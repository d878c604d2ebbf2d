package report

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
)

// two are the parts of two ranks, whose clocks differ by an hour: rank 1 waits 500 ns for a message of rank 0, and rank
// 0 then 300 ns for rank 1 in a collective call.
func two() []*Part {
	const hour = 3600_000_000_000
	site := func(op, kind string) Site {
		return Site{Op: op, Kind: kind, Func: "main.main", File: "a.go", Line: 7, Calls: 1}
	}
	a := &Part{Rank: 0, Host: "a", Begin: 1000, End: 5000,
		Sites: []Site{site("Send", "send"), site("Barrier", "collective")},
		Events: []Event{{Site: 0, Peer: 1, Begin: 2000, End: 2100, Bytes: 8},
			{Site: 1, Peer: -1, Begin: 3000, End: 3400, Collective: true}},
		Transfers: []Transfer{{Message{Sent, 1, 4, 0, 8}, 0}}, Out: []Flow{{1, 1, 8}}}
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
	want := []WaitRow{{1, 0, "late sender", 1, 500}, {0, 1, "late in a collective call", 1, 300}}
	if len(m.Report.Waits) != 2 || m.Report.Waits[0] != want[0] || m.Report.Waits[1] != want[1] {
		t.Errorf("waits: %+v, want %+v", m.Report.Waits, want)
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
	r := New(0, mostTogether, "")
	const calls = 2 * leastOfRank
	for range calls {
		r.Record(&Call{Op: "Send", Kind: "send", End: 2, Bytes: 3}, []Message{{Way: Sent, Peer: 1, Bytes: 3}})
	}
	p := r.Part()
	if len(p.Events) != leastOfRank || len(p.Transfers) != leastOfRank || p.Unkept != calls-leastOfRank {
		t.Errorf("%d events, %d messages, %d not kept", len(p.Events), len(p.Transfers), p.Unkept)
	}
	if len(p.Sites) != 1 || p.Sites[0].Calls != calls || p.Sites[0].Bytes != 3*calls || p.Sites[0].Time != 2*calls ||
		p.Out[0] != (Flow{1, calls, 3 * calls}) || p.Sizes[2] != calls {
		t.Errorf("the sums are %+v, %+v", p.Sites, p.Out)
	}
}

// BenchmarkRecord is what a call costs more with a report, but for the hooks.
func BenchmarkRecord(b *testing.B) {
	r := New(0, 2, "")
	b.ReportAllocs()
	for b.Loop() {
		c := Call{Op: "Send", Kind: "send", Begin: r.Now(), Bytes: 8, Peer: 1}
		c.End = r.Now()
		r.Record(&c, []Message{{Way: Sent, Peer: 1, Tag: 7, Bytes: 8}})
	}
}
