package collectives

import (
	"math"
	"strings"
	"testing"
)

// A tuned line holds for the sizes, ranks and CPUs that it names, before the table and behind a named algorithm. Where
// it does not fit a call, the next one counts.
func TestTune(t *testing.T) {
	lines := []Line{
		{Operation: "bcast", LeastBytes: 1024, Bytes: 4096, LeastRanks: 5, Ranks: 8, Via: "shm", CPUs: "crowded",
			Algorithm: "scatter_doubling"}, // needs a power of two of ranks
		{Operation: "bcast", LeastBytes: 1024, Bytes: 4096, LeastRanks: 5, Ranks: 8, Via: "shm", CPUs: "any",
			Algorithm: "chain"},
		{Operation: "barrier", Via: "any", CPUs: "any", Algorithm: "tree"},
	}
	var c Choice
	if err := c.Tune(lines); err != nil {
		t.Fatal(err)
	}
	const table = "the table's"
	for _, call := range []struct {
		ranks int
		bytes int64
		via   Via
		roomy bool
		want  string
	}{
		{8, 1023, SharedMemory, false, table}, {8, 1024, SharedMemory, false, "scatter_doubling"},
		{8, 4096, SharedMemory, false, "scatter_doubling"}, {8, 4097, SharedMemory, false, table},
		{8, 2000, SharedMemory, true, "chain"}, {8, 2000, Network, false, table},
		{7, 2000, SharedMemory, false, "chain"}, {4, 2000, SharedMemory, false, table}, {9, 2000, SharedMemory, false, table},
	} {
		p := Params{Size: call.ranks, Count: call.bytes, ElemSize: 1, Commutative: true, Board: true, Roomy: call.roomy}
		want := call.want
		if want == table {
			want = new(Choice).Algorithm(Bcast, &p, call.via).Name
		}
		if got := c.Algorithm(Bcast, &p, call.via).Name; got != want {
			t.Errorf("%+v: %s", call, got)
		}
	}
	p := Params{Size: 3, ElemSize: 1, Board: true}
	if got := c.Algorithm(Barrier, &p, Network).Name; got != "tree" {
		t.Errorf("a line without limits gives %s", got)
	}
	named, err := ParseChoice("barrier:dissemination")
	if err == nil {
		err = named.Tune(lines)
	}
	if err != nil {
		t.Fatal(err)
	}
	if got := named.Algorithm(Barrier, &p, Network).Name; got != "dissemination" {
		t.Errorf("a tuned line goes before a named algorithm: %s", got)
	}
}

// The lines of the table are lines that can be tuned.
func TestTuneTable(t *testing.T) {
	var c Choice
	if err := c.Tune(Lines()); err != nil {
		t.Fatal(err)
	}
	if len(c.tuned) != len(table) {
		t.Fatalf("%d lines of %d", len(c.tuned), len(table))
	}
	for i, r := range c.tuned {
		if r.rule != table[i] {
			t.Errorf("%+v has become %+v", table[i], r.rule)
		}
	}
}

func TestTuneErrors(t *testing.T) {
	good := Line{Operation: "bcast", Via: "any", CPUs: "any", Algorithm: "chain"}
	for want, spoil := range map[string]func(*Line){
		`operation: there is no operation "cast"; there are barrier`:                  func(l *Line) { l.Operation = "cast" },
		`algorithm: bcast has no algorithm ""; it has binomial`:                       func(l *Line) { l.Algorithm = "" },
		`over: there is no "ib"; there are any, shm, net`:                             func(l *Line) { l.Via = "ib" },
		`cpus: it is missing; write one of any, crowded, roomy`:                       func(l *Line) { l.CPUs = "" },
		`most_bytes: -1 is no such number`:                                            func(l *Line) { l.Bytes = -1 },
		`least_bytes: 9223372036854775807 is no such number`:                          func(l *Line) { l.LeastBytes = math.MaxInt64 },
		`no call has from 2 to 1 bytes on 0 to`:                                       func(l *Line) { l.LeastBytes, l.Bytes = 2, 1 },
		`no call has from 0 to 9223372036854775807 bytes on 9 to 8 ranks`:             func(l *Line) { l.LeastRanks, l.Ranks = 9, 8 },
		`least_ranks_per_host: -2 is no such number; leave it out, or write one of 1`: func(l *Line) { l.PerHost = -2 },
	} {
		l := good
		spoil(&l)
		var c Choice
		err := c.Tune([]Line{good, l})
		if err == nil || !strings.Contains(err.Error(), "collectives, entry 2: "+want) {
			t.Errorf("%+v: %v; want %s", l, err, want)
		}
	}
}
