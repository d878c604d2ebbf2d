package main

import (
	"fmt"
	"math"
	"slices"
)

// goal is one figure that is asked for, of one column of one measurement and a range of its keys.
type goal struct {
	measurement string
	columns     []string // ids; none: all
	low, high   int64    // keys
	kind        kind
	most        bool // the bound is the most that may be, otherwise the least
	bound       float64
	what        string // for the summary
}

// kind says which number is held against the bound.
type kind int

const (
	toPeer   kind = iota // our median / the best peer's
	absolute             // our median
	toFirst              // our median / ours at the least key
	toLimit              // our median / the baseline's
)

const (
	kib     = 1 << 10
	mib     = 1 << 20
	anyKey  = math.MaxInt64
	aMost   = true
	atLeast = false
)

// goals are the figures of issue 3, those of issue 4 between hosts, and those of issue 5 in a guest. "n times better" of a time is at most 1/n of it.
var goals = []goal{
	{"latency", nil, 1, 256, toPeer, aMost, 0.65, "latency, 1–256 B"},
	{"latency", nil, 512, 8 * kib, toPeer, aMost, 0.8, "latency, 512 B–8 KiB"},
	{"latency", nil, 16 * kib, 4 * mib, toPeer, aMost, 0.45, "latency, 16 KiB–4 MiB"},
	{"latency_alloc", nil, 64 * kib, 4 * mib, toPeer, aMost, 0.4, "latency, 64 KiB–4 MiB, buffers from mpi.Alloc"},
	{"bw", nil, 1, 8 * kib, toPeer, atLeast, 1.2, "bandwidth, 1 B–8 KiB"},
	{"bw", nil, 16 * kib, 4 * mib, toPeer, atLeast, 2, "bandwidth, 16 KiB–4 MiB"},
	{"bibw", nil, 1, 8 * kib, toPeer, atLeast, 1.2, "bandwidth both ways, 1 B–8 KiB"},
	{"bibw", nil, 16 * kib, 4 * mib, toPeer, atLeast, 2, "bandwidth both ways, 16 KiB–4 MiB"},
	{"mbw_mr", nil, 8, 8, toPeer, atLeast, 1.5, "message rate, 8 B, one pair"},
	{"latency_mt", nil, 2, 64, toPeer, aMost, 0.5, "latency of 2, 8, 64 threads a side"},
	{"match", nil, 1e5, 1e5, toPeer, aMost, 0.01, "match with 10^5 entries"},
	{"match", nil, 1e5, 1e5, toFirst, aMost, 2, "match with 10^5 entries beside one"},
	{"ring", nil, 8, 32, toPeer, atLeast, 3, "ring of 8 and 32 ranks"},
	{"allpairs", nil, 8, 32, toPeer, atLeast, 3, "random traffic of 8 and 32 ranks"},
	{"idle", []string{"cpu"}, 1, anyKey, absolute, aMost, 0.02, "CPU of a rank blocked in Recv, s/s"},
	{"init", []string{"wall"}, 2, 64, toPeer, aMost, 0.25, "init of 2, 16, 64 ranks, time"},
	{"init", []string{"rss"}, 2, 64, toPeer, aMost, 1, "init of 2, 16, 64 ranks, resident size"},
	{"overlap", []string{"Isend", "Irecv"}, 4 * mib, 4 * mib, absolute, atLeast, 90, "4 MiB hidden under computation, %"},

	{"tcp-latency", nil, 1, 64 * kib, toPeer, aMost, 0.9, "between hosts: latency, 1 B–64 KiB"},
	{"tcp-latency", nil, 1, 64 * kib, toLimit, aMost, 1.25, "between hosts: latency, 1 B–64 KiB"},
	{"tcp-bw", nil, 64 * kib, 4 * mib, toPeer, atLeast, 1.1, "between hosts: bandwidth, 64 KiB–4 MiB"},
	{"tcp-bw", nil, 64 * kib, 4 * mib, toLimit, atLeast, 0.9, "between hosts: bandwidth, 64 KiB–4 MiB"},
	{"tcp-rate", nil, 8, 8, toPeer, atLeast, 3, "between hosts: message rate, 8 B, one pair"},
	{"tcp-tls-bw", nil, 64 * kib, 4 * mib, toPeer, atLeast, 0.5, "between hosts: bandwidth with TLS beside plain"},
	{"tcp-idle", []string{"cpu"}, 1, anyKey, absolute, aMost, 0.02, "between hosts: CPU of a rank blocked in Recv, s/s"},

	{"rdma-latency", []string{"mean"}, 8, 8, toPeer, aMost, 0.9, "soft-RoCE in a guest: latency, 8 B, mean"},
	{"rdma-latency", []string{"typical"}, 8, 8, toLimit, aMost, 1.1, "soft-RoCE in a guest: latency, 8 B, typical"},
	{"rdma-bw", nil, 256 * kib, 256 * kib, toLimit, atLeast, 0.9, "soft-RoCE in a guest: bandwidth, 256 KiB"},
}

// asked lists the goals of one cell.
func asked(measurement, column string, key int64) []goal {
	var list []goal
	for _, g := range goals {
		if g.measurement == measurement && g.low <= key && key <= g.high && g.isFor(column) {
			list = append(list, g)
		}
	}
	return list
}

func (g goal) isFor(column string) bool {
	return len(g.columns) == 0 || slices.Contains(g.columns, column)
}

// standing is the medians of one cell; NaN where there is none.
type standing struct {
	ours, peer, limit float64 // peer: the best one's; limit: the baseline's
	first             float64 // our own at the least key
}

// value is what is held against the bound. NaN where what it needs is missing.
func (g goal) value(s standing) float64 {
	switch g.kind {
	case absolute:
		return s.ours
	case toFirst:
		return s.ours / s.first
	case toLimit:
		return s.ours / s.limit
	default:
		return s.ours / s.peer
	}
}

// met says whether a value is good enough; NaN is not.
func (g goal) met(v float64) bool {
	if g.most {
		return v <= g.bound
	}
	return v >= g.bound
}

// worse says whether v is further from the bound than w, on its bad side.
func (g goal) worse(v, w float64) bool {
	if g.most {
		return v > w
	}
	return v < w
}

// baseline is that of the measurement.
func (g goal) baseline() baseline {
	m, _ := find(plan(false), g.measurement)
	_, b := baselineIn(m.lineup)
	return b
}

// bounds is the goal as one reads it.
func (g goal) bounds() string {
	sign := "≥"
	if g.most {
		sign = "≤"
	}
	text := fmt.Sprintf("%s %v", sign, g.bound)
	switch g.kind {
	case toFirst:
		text += " × our own at 1"
	case toLimit:
		text += " × " + g.baseline().called
	case absolute:
		text += " (absolute)"
	}
	return text
}

// verdict is the last word on a value.
func (g goal) verdict(v float64) string {
	switch {
	case math.IsNaN(v):
		return "nothing to compare"
	case g.met(v):
		return "reached"
	}
	return "**missed**"
}
