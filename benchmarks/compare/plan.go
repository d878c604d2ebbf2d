package main

import (
	"fmt"
	"strings"
	"time"
)

// measurement is one page of the results: one program, run with one or more sets of arguments.
type measurement struct {
	name      string // of its files, and for -only
	title     string
	about     string
	program   string
	key       string // what the first column of the tables counts
	runs      []arguments
	columns   []column
	sizes     bool // the first column is a range of sizes: drawn as a curve, with the ratio beneath
	limit     time.Duration
	seconds   float64  // about what one round of all libraries takes
	hosts     bool     // between two hosts, not on this one
	guest     bool     // in a guest, shortRuns in each round
	libraries []string // ours first; nil: ours, Open MPI and MPICH
	rival     string   // what the ratios are to; empty: the best peer
	// read makes lines of what a run printed; nil: parse.
	read func(a arguments, out string, took time.Duration) ([]line, error)
}

// arguments are those of one run.
type arguments struct {
	ranks int
	key   int64    // of the only line that the run prints; 0: the line's own
	args  string   // the same for all
	iters string   // iterations and warm-up
	ours  string   // takes the place of iters for ours, where the peers are so slow that theirs would measure noise
	quick []string // iters and ours with -quick; nil: left out there
	tool  string   // what perftest runs instead, with its options
}

// column is one value of the program's lines that the page shows.
type column struct {
	name   string
	unit   string
	field  int // of a line: 0 is the key
	higher bool
	digits int
	aside  bool // in the tables, not in the picture
}

// better is which numbers are.
func (c column) better() string {
	if c.higher {
		return "higher is better"
	}
	return "lower is better"
}

const (
	fullLimit  = 20 * time.Second // a peer that is slow with many ranks is not waited for longer
	quickLimit = 6 * time.Second
)

// plan is the set. Sizes are measured in groups, so that each runs for about a tenth of a second: less would be noise.
func plan(quick bool) []measurement {
	all := []measurement{
		latency(), latencyAlloc(), bandwidth("bw", "Bandwidth", "from one rank to another", 8),
		bandwidth("bibw", "Bandwidth, both directions at once", "of both directions together", 14),
		messageRate(), threads(), match(), ring(), allPairs(), idle(), start(), overlap(),
	}
	all = append(append(all, tcpPlan()...), rdmaPlan()...)
	var kept []measurement
	for _, m := range all {
		if m.limit == 0 {
			m.limit = fullLimit
		}
		if quick {
			m.makeQuick()
		}
		if m.libraries == nil {
			m.libraries = []string{gorun, openMPI, mpich}
		}
		if len(m.runs) > 0 {
			kept = append(kept, m)
		}
	}
	return kept
}

// makeQuick keeps the runs that have numbers for -quick, with these.
func (m *measurement) makeQuick() {
	var kept []arguments
	for _, a := range m.runs {
		if a.quick == nil {
			continue
		}
		a.iters, a.ours = a.quick[0], ""
		if len(a.quick) > 1 {
			a.ours = a.quick[1]
		}
		kept = append(kept, a)
	}
	m.runs, m.limit, m.seconds = kept, quickLimit, m.seconds/5
}

func oneWay() []column {
	return []column{{name: "one way", unit: "µs", field: 1, digits: 2}}
}

func latency() measurement {
	return measurement{
		name: "latency", title: "Latency", program: "latency", key: "bytes", sizes: true, seconds: 14,
		about: "Half of a round trip of two ranks that play ping-pong with blocking Send and Recv; ordinary Go " +
			"slices (ours) and malloc (theirs).",
		runs: []arguments{
			{ranks: 2, args: "-m 1:8192", iters: "-i 200000 -x 2000", quick: []string{"-i 40000 -x 1000"}},
			{ranks: 2, args: "-m 16384:262144", iters: "-i 20000 -x 1000", quick: []string{"-i 800 -x 50"}},
			{ranks: 2, args: "-m 524288:4194304", iters: "-i 1000 -x 200", quick: []string{"-i 100 -x 10"}},
		},
		columns: oneWay(),
	}
}

func latencyAlloc() measurement {
	return measurement{
		name: "latency_alloc", title: "Latency, buffers from mpi.Alloc", program: "latency", key: "bytes", sizes: true,
		seconds: 7,
		about:   "The same ping-pong with buffers from mpi.Alloc (ours) and MPI_Alloc_mem (theirs).",
		runs: []arguments{
			{ranks: 2, args: "--alloc -m 65536:262144", iters: "-i 20000 -x 1000", quick: []string{"-i 800 -x 50"}},
			{ranks: 2, args: "--alloc -m 524288:4194304", iters: "-i 1000 -x 200", quick: []string{"-i 100 -x 10"}},
		},
		columns: oneWay(),
	}
}

func bandwidth(name, title, what string, seconds float64) measurement {
	return measurement{
		name: name, title: title, program: name, key: "bytes", sizes: true, seconds: seconds,
		about: "Bytes a second " + what + ", windows of 64 Isend and 64 Irecv; MB are 10^6 bytes.",
		runs: []arguments{
			{ranks: 2, args: "-W 64 -m 1:8192", iters: "-i 5000 -x 100", quick: []string{"-i 1000 -x 50"}},
			{ranks: 2, args: "-W 64 -m 16384:262144", iters: "-i 1000 -x 50", quick: []string{"-i 40 -x 5"}},
			{ranks: 2, args: "-W 64 -m 524288:4194304", iters: "-i 60 -x 10", quick: []string{"-i 4 -x 1"}},
		},
		columns: []column{{name: "bandwidth", unit: "MB/s", field: 1, higher: true}},
	}
}

func messageRate() measurement {
	return measurement{
		name: "mbw_mr", title: "Message rate, one pair", program: "mbw_mr", key: "bytes", seconds: 5,
		about: "Messages a second from one rank to another, windows of 64.",
		runs: []arguments{{ranks: 2, args: "-p 1 -W 64 -m 8:8", iters: "-i 100000 -x 1000",
			quick: []string{"-i 30000 -x 500"}}},
		columns: []column{{name: "messages a second", field: 2, higher: true}},
	}
}

func threads() measurement {
	m := measurement{
		name: "latency_mt", title: "Latency of many threads", program: "latency_mt", key: "threads a side", seconds: 40,
		limit: 60 * time.Second, // threads that spin on one core take milliseconds for a message
		about: "Two ranks with so many goroutines (ours) or POSIX threads under MPI_THREAD_MULTIPLE (theirs) each. " +
			"Every pair of threads plays ping-pong with 8 bytes under its own tag, all at once: the mean time one way.",
		columns: oneWay(),
	}
	for _, t := range []struct {
		n           int64
		iters, ours string
		quick       []string
	}{
		{2, "-i 10000 -x 100", "-i 100000 -x 1000", []string{"-i 100 -x 5", "-i 20000 -x 200"}},
		{8, "-i 500 -x 10", "-i 20000 -x 200", []string{"-i 100 -x 5", "-i 4000 -x 100"}},
		{64, "-i 30 -x 2", "-i 2000 -x 50", []string{"-i 5 -x 1", "-i 500 -x 10"}},
	} {
		m.runs = append(m.runs, arguments{ranks: 2, key: t.n, args: fmt.Sprintf("-m 8:8 -t %d:%d", t.n, t.n),
			iters: t.iters, ours: t.ours, quick: t.quick})
	}
	return m
}

func match() measurement {
	m := measurement{
		name: "match", title: "Matching in long queues", program: "match", key: "entries", seconds: 35,
		limit: 90 * time.Second,
		about: "What one message of 8 bytes costs behind so many posted receives, or so many unexpected messages, " +
			"that do not match it. A receive with both wildcards matches every message: it takes the oldest entry.",
		runs: []arguments{
			{ranks: 2, args: "-m 1:1000", iters: "-i 100 -x 5", quick: []string{"-i 50 -x 2"}},
			{ranks: 2, args: "-m 10000:10000", iters: "-i 50 -x 2", ours: "-i 1000 -x 100"},
			{ranks: 2, args: "-m 100000:100000", iters: "-i 20 -x 1", ours: "-i 1000 -x 100"},
		},
	}
	for i, name := range []string{"posted, exact", "posted, any source", "posted, any tag", "posted, any of both",
		"unexpected, exact", "unexpected, any source", "unexpected, any tag", "unexpected, any of both"} {
		m.columns = append(m.columns, column{name: name, unit: "µs", field: i + 1, digits: 3})
	}
	return m
}

func ring() measurement {
	return measurement{
		name: "ring", title: "A token round all ranks", program: "ring", key: "ranks", seconds: 26,
		about: "One token of 8 bytes goes round: hops a second. With more ranks than cores this shows how waiting " +
			"ranks make room for the one that has work.",
		runs: []arguments{
			{ranks: 2, key: 2, iters: "-i 200000 -x 2000", quick: []string{"-i 50000 -x 1000"}},
			// The same for all libraries: a short run would measure how the ranks come together. A peer that is too
			// slow for it is reported so.
			{ranks: 8, key: 8, iters: "-i 20000 -x 200", quick: []string{"-i 5000 -x 50"}},
			{ranks: 32, key: 32, iters: "-i 2000 -x 20"},
		},
		columns: []column{{name: "hops a second", field: 3, higher: true}},
	}
}

func allPairs() measurement {
	return measurement{
		name: "allpairs", title: "All-pairs random traffic", program: "allpairs", key: "ranks", seconds: 10,
		about: "Each rank sends messages of 8 bytes to random others, 64 in flight, and receives from any source: " +
			"messages a second of the whole job. All three complete the oldest receive and send with Test, Test, " +
			"WaitAny. With MPI_Waitsome over all requests of the window, Open MPI was seen at 5 to 7 million with 8 " +
			"ranks.",
		runs: []arguments{
			{ranks: 8, key: 8, iters: "-i 20000 -x 200", quick: []string{"-i 5000 -x 50"}},
			{ranks: 32, key: 32, iters: "-i 5000 -x 100"},
		},
		columns: []column{{name: "messages a second", field: 1, higher: true}},
	}
}

func idle() measurement {
	return measurement{
		name: "idle", title: "A blocked rank", program: "idle", key: "ranks", seconds: 8,
		about: "CPU seconds that a rank takes in each second that it is blocked in Recv (user and system), of the " +
			"worst rank.",
		runs: []arguments{{ranks: 2, iters: "-i 2", quick: []string{"-i 1"}}},
		columns: []column{
			{name: "CPU seconds a second", unit: "s/s", field: 1, digits: 4},
			{name: "greatest resident size of a rank", unit: "KiB", field: 2},
		},
	}
}

func start() measurement {
	return measurement{
		name: "init", title: "Starting a job", program: "init", key: "ranks", seconds: 14, read: readInit,
		about: "A job that joins and ends: wall time of the whole command, and the greatest resident size of a rank.",
		runs: []arguments{
			{ranks: 2, key: 2, quick: []string{""}},
			{ranks: 16, key: 16, quick: []string{""}},
			{ranks: 64, key: 64},
		},
		columns: []column{
			{name: "whole command", unit: "ms", field: 1},
			{name: "greatest resident size of a rank", unit: "KiB", field: 2},
		},
	}
}

func overlap() measurement {
	m := measurement{
		name: "overlap", title: "Transfers under computation", program: "overlap", key: "bytes", seconds: 3,
		about: "How much of a transfer is hidden when a rank computes between Isend or Irecv and Wait, without any " +
			"call of the library, for about twice as long as the transfer takes alone. The other rank is in its " +
			"blocking Recv or Send.",
		runs: []arguments{{ranks: 2, args: "-m 4194304:4194304", iters: "-i 50 -x 5", quick: []string{"-i 20 -x 3"}}},
	}
	for i, call := range []string{"Isend", "Irecv"} {
		m.columns = append(m.columns,
			column{name: call + " hidden", unit: "%", field: 4*i + 4, higher: true},
			column{name: call + " and Wait alone", unit: "µs", field: 4*i + 1, digits: 1, aside: true},
			column{name: call + ", computation, Wait", unit: "µs", field: 4*i + 3, digits: 1, aside: true})
	}
	return m
}

// words are the arguments of one library's run.
func (a arguments) words(ours bool) []string {
	iters := a.iters
	if ours && a.ours != "" {
		iters = a.ours
	}
	return strings.Fields(a.args + " " + iters)
}
