package main

import (
	"cmp"
	"fmt"
	"slices"
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
	quickTime float64  // the same with -quick; 0: a part of seconds
	hosts     bool     // between two hosts, not on this one
	guest     bool     // in a guest, shortRuns in each round
	ucx       string   // over UCX, on this host: the transports that it gets
	ungauged  bool     // what a cache line takes does not matter
	libraries []string // ours first; nil: ours, Open MPI and MPICH
	rival     string   // what the ratios are to; empty: the best peer
	// read makes lines of what a run printed; nil: parse.
	read func(a arguments, out string, took time.Duration) ([]line, error)
}

// arguments are those of one run.
type arguments struct {
	ranks             int
	key               int64  // of the only line that the run prints; 0: the line's own
	label             string // stands for the key; empty: the key says what the run is about
	args              string // the same for all
	peerArgs, ownArgs string // more of each: where the peers are so slow that a time to measure for would be no limit
	quick             string // takes the place of args with -quick; same: these; empty: left out there
	times             int    // runs in each turn; 0: one
	tool              string // what perftest or ucx_perftest runs instead, with its options
}

// same is what stands in the place of quick arguments that are no others.
const same = "="

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
	fullLimit  = 30 * time.Second // a peer that is slow with many ranks is not waited for longer
	quickLimit = 10 * time.Second
	quickTotal = 170 * time.Second // of measuring; pages and pictures are made after it
	quickShare = 0.7               // of the time of a run
)

// plan returns the whole set of measurements, or with -cores N the set for N cores. Each program warms up for 0.7 s
// once, so that all sizes are measured by one run.
func plan(quick bool, cores int) []measurement {
	all := wholePlan()
	if cores > 0 {
		all = coresPlan(cores)
	}
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

func wholePlan() []measurement {
	all := []measurement{
		latency(), latencyAlloc(), latencyPersistent(), multiLatency(),
		bandwidth("bw", "Bandwidth", "from one rank to another", 7),
		bandwidth("bibw", "Bandwidth, both directions at once", "of both directions together", 8),
		bandwidthPersistent(), messageRate(), runAhead(), fan("fan_in", "to rank 0 from"),
		fan("fan_out", "from rank 0 to"), consumer(), late(), halo(), threads(), match(), ring(), allPairs(),
		allPairsSome(), early(), first(), idle(), start(), overlap(),
	}
	return slices.Concat(all, collectivePlan(), oneSidedPlan(), tcpPlan(), ucxPlan(), rdmaPlan())
}

// makeQuick keeps the runs that have arguments for -quick, with these.
func (m *measurement) makeQuick() {
	var kept []arguments
	for _, a := range m.runs {
		if a.quick == "" {
			continue
		}
		if a.quick != same {
			a.args = a.quick
		}
		a.times = min(a.times, 1)
		kept = append(kept, a)
	}
	m.seconds *= quickShare * float64(len(kept)) / float64(max(1, len(m.runs)))
	m.seconds = cmp.Or(m.quickTime, m.seconds)
	m.runs, m.limit = kept, quickLimit
}

// gauged reports whether the state of the machine is watched.
func (m measurement) gauged() bool { return !m.guest && !m.ungauged }

func oneWay() []column {
	return []column{{name: "one way", unit: "µs", field: 1, digits: 2}}
}

func latency() measurement {
	return measurement{
		name: "latency", title: "Latency", program: "latency", key: "bytes", sizes: true, seconds: 6,
		about: "Half of a round trip of two ranks that play ping-pong with blocking Send and Recv; ordinary Go " +
			"slices (ours) and malloc (theirs).",
		runs:    []arguments{{ranks: 2, args: "-m 1:4194304 --time 0.02", quick: same}},
		columns: oneWay(),
	}
}

func latencyAlloc() measurement {
	return measurement{
		name: "latency_alloc", title: "Latency, buffers from mpi.Alloc", program: "latency", key: "bytes", sizes: true,
		seconds: 4,
		about:   "The same ping-pong with buffers from mpi.Alloc (ours) and MPI_Alloc_mem (theirs).",
		runs:    []arguments{{ranks: 2, args: "--alloc -m 65536:4194304 --time 0.02"}},
		columns: oneWay(),
	}
}

func latencyPersistent() measurement {
	return measurement{
		name: "latency_persistent", title: "Latency, persistent requests", program: "latency_persistent", key: "bytes",
		sizes: true, seconds: 5,
		about:   "The same ping-pong with requests that are made once and started for each message.",
		runs:    []arguments{{ranks: 2, args: "-m 1:65536 --time 0.02"}},
		columns: oneWay(),
	}
}

func multiLatency() measurement {
	return measurement{
		name: "multi_lat", title: "Latency, two pairs at once", program: "multi_lat", key: "bytes", seconds: 9,
		about: "Ping-pong with blocking Send and Recv of two pairs of ranks at the same time, the mean of both.",
		runs: []arguments{
			{ranks: 4, args: "-p 2 -m 8:8 --time 0.2"}, {ranks: 4, args: "-p 2 -m 8192:8192 --time 0.2"},
		},
		columns: oneWay(),
	}
}

func bandwidth(name, title, what string, seconds float64) measurement {
	m := measurement{
		name: name, title: title, program: name, key: "bytes", sizes: true, seconds: seconds,
		about:   "Bytes a second " + what + ", windows of 64 Isend and 64 Irecv; MB are 10^6 bytes.",
		runs:    []arguments{{ranks: 2, args: "-W 64 -m 1:4194304 --time 0.02"}},
		columns: []column{{name: "bandwidth", unit: "MB/s", field: 1, higher: true}},
	}
	if name == "bw" {
		m.runs[0].quick = "-W 64 -m 1:262144 --time 0.02"
	}
	return m
}

func bandwidthPersistent() measurement {
	m := bandwidth("bw_persistent", "Bandwidth, persistent requests", "from one rank to another", 5)
	m.about = "Bytes a second from one rank to another, windows of 64 requests that are made once and started for " +
		"each window; MB are 10^6 bytes."
	m.runs = []arguments{{ranks: 2, args: "-W 64 -m 1:65536 --time 0.02"}}
	return m
}

func messageRate() measurement {
	return measurement{
		name: "mbw_mr", title: "Message rate, one pair", program: "mbw_mr", key: "bytes", seconds: 4,
		about:   "Messages a second from one rank to another, windows of 64, each of them answered.",
		runs:    []arguments{{ranks: 2, args: "-p 1 -W 64 -m 8:8 --time 0.1", quick: same}},
		columns: []column{{name: "messages a second", field: 2, higher: true}},
	}
}

func runAhead() measurement {
	m := messageRate()
	m.name, m.title = "run_ahead", "Message rate without an answer"
	m.about = "Messages a second from one rank to another, windows of 64 that are not answered: the sender runs " +
		"ahead, and most messages are unexpected."
	m.runs = []arguments{{ranks: 2, args: "-p 1 -W 64 -m 8:8 --run-ahead --time 0.1",
		quick: same}}
	return m
}

func fan(name, what string) measurement {
	return measurement{
		name: name, title: "Message rate " + what + " three", program: name, key: "bytes", seconds: 8,
		about: "Messages a second " + what + " three others, windows of 64 with each.",
		runs: []arguments{
			{ranks: 4, args: "-W 64 -m 8:8 --time 0.2"}, {ranks: 4, args: "-W 64 -m 8192:8192 --time 0.2"},
		},
		columns: []column{{name: "messages a second", field: 2, higher: true}},
	}
}

func consumer() measurement {
	return measurement{
		name: "consumer", title: "A slow consumer", program: "consumer", key: "bytes", seconds: 4,
		about: "One rank sends as fast as it can; the other one receives and computes for 7 µs a message: how much " +
			"of its time it computes.",
		runs:    []arguments{{ranks: 2, args: "-m 8:8 --time 0.1", quick: same}},
		columns: []column{{name: "time that it computes", unit: "%", field: 1, higher: true, digits: 1}},
	}
}

func late() measurement {
	return measurement{
		name: "late", title: "After one rank was late", program: "late", key: "µs late", seconds: 9,
		about: "Ten round trips of 8 bytes after one of two ranks has computed for so long, while the other one " +
			"waited in Recv.",
		runs: []arguments{{ranks: 2, args: "-m 30:10000 --time 0.25", quick: same}},
		columns: []column{
			{name: "ten round trips, mean", unit: "µs", field: 1, digits: 1},
			{name: "ten round trips, median", unit: "µs", field: 2, digits: 1},
			{name: "ten round trips, 99th percentile", unit: "µs", field: 4, digits: 1},
		},
	}
}

func halo() measurement {
	m := measurement{
		name: "halo", title: "Uneven computation and halos", program: "halo", key: "µs of computation", seconds: 9,
		about: "Ranks compute for a drawn time, 0, 10 or 50 % around the time in the first column, then exchange " +
			"4 KiB with both neighbours (Irecv, Isend, WaitAll); every tenth step ends with a Barrier. The time of a step " +
			"beyond the slowest rank's computation, and the processor time of a rank. All libraries draw the same " +
			"times.",
		runs: []arguments{{ranks: 2, args: "-m 20:20000 --time 0.1", quick: "-m 20:2000 --time 0.1"}},
	}
	for i, spread := range []int{0, 10, 50} {
		m.columns = append(m.columns,
			column{name: fmt.Sprintf("beyond, ± %d %%", spread), unit: "µs", field: 2*i + 1, digits: 1},
			column{name: fmt.Sprintf("processor time, ± %d %%", spread), unit: "s/s", field: 2*i + 2, digits: 2,
				aside: true})
	}
	return m
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
		n     int64
		count string // the same for all libraries: what the slowest can do within the limit
	}{{2, "-i 10000 -x 100"}, {8, "-i 500 -x 10"}, {64, "-i 30 -x 2"}} {
		m.runs = append(m.runs, arguments{ranks: 2, key: t.n,
			args: fmt.Sprintf("-m 8:8 -t %d:%d --warm-time 0.7 %s", t.n, t.n, t.count)})
	}
	return m
}

func match() measurement {
	m := measurement{
		name: "match", title: "Matching in long queues", program: "match", key: "entries", seconds: 42,
		limit: 90 * time.Second,
		about: "The cost of one message of 8 bytes behind so many posted receives, or so many unexpected messages, " +
			"that do not match it. A receive with both wildcards matches every message: it takes the oldest entry.",
		runs: []arguments{
			{ranks: 2, args: "-m 1:1000 --warm-time 0.7 -i 100 -x 5"},
			{ranks: 2, args: "-m 10000:10000 --warm-time 0.7", peerArgs: "-i 50 -x 2", ownArgs: "-i 1000 -x 100"},
			{ranks: 2, args: "-m 100000:100000 --warm-time 0.7", peerArgs: "-i 20 -x 1", ownArgs: "-i 1000 -x 100"},
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
		name: "ring", title: "A token round all ranks", program: "ring", key: "ranks", seconds: 16,
		about: "One token of 8 bytes goes round: hops a second. With more ranks than cores this shows how waiting " +
			"ranks make room for the one that has work.",
		runs: []arguments{
			{ranks: 2, key: 2, args: "--time 0.2"},
			// The same number for all libraries: where a time slice is longer than a lap, a pace that is taken from a
			// few laps is that of the slices.
			{ranks: 8, key: 8, args: "-i 5000 -x 50 --warm-time 0.7", quick: same},
			{ranks: 32, key: 32, args: "-i 1000 -x 10 --warm-time 0.7"},
		},
		columns: []column{{name: "hops a second", field: 3, higher: true}},
	}
}

func allPairs() measurement {
	return measurement{
		name: "allpairs", title: "All-pairs random traffic", program: "allpairs", key: "ranks", seconds: 12,
		about: "Each rank sends messages of 8 bytes to random others, 64 in flight, and receives from any source: " +
			"messages a second of the whole job. All three complete the oldest receive and send with Test, Test, " +
			"WaitAny.",
		runs: []arguments{
			{ranks: 8, key: 8, args: "-i 20000 -x 200 --warm-time 0.7"},
			{ranks: 32, key: 32, args: "-i 5000 -x 100 --warm-time 0.7"},
		},
		columns: []column{{name: "messages a second", field: 1, higher: true}},
	}
}

func allPairsSome() measurement {
	m := allPairs()
	m.name, m.title = "allpairs_some", "All-pairs random traffic, WaitSome"
	m.about = "The same traffic; all three complete with WaitSome whatever is complete of all receives and sends."
	for i := range m.runs {
		m.runs[i].args = "--waitsome " + m.runs[i].args
	}
	return m
}

func early() measurement {
	return measurement{
		name: "early", title: "The first 2,000 round trips", program: "latency", key: "bytes", seconds: 4,
		about: "The ping-pong of two ranks from the start of the job on, without any warm-up: the mean time one way " +
			"of the first 2,000 round trips.",
		runs:    []arguments{{ranks: 2, args: "-m 8:8 -i 2000 -x 0", quick: same, times: 3}},
		columns: oneWay(),
	}
}

func first() measurement {
	return measurement{
		name: "first", title: "The first messages", program: "first", key: "ranks", seconds: 50, quickTime: 4,
		ungauged: true,
		about: "With two ranks their first round trip, with more the first exchange of all ranks with all others, 8 " +
			"bytes each: from an instant that all ranks sleep until, after Init, to when the last one has finished. " +
			"And the same once more.",
		runs: []arguments{
			{ranks: 2, key: 2, quick: same, times: 3}, {ranks: 8, key: 8, times: 3}, {ranks: 32, key: 32, times: 3},
			{ranks: 64, key: 64},
		},
		columns: []column{
			{name: "first", unit: "µs", field: 1},
			{name: "second", unit: "µs", field: 2, aside: true},
		},
	}
}

func idle() measurement {
	return measurement{
		name: "idle", title: "A blocked rank", program: "idle", key: "ranks", seconds: 8, ungauged: true,
		about: "CPU seconds that a rank takes in each second that it is blocked in Recv (user and system), of the " +
			"worst rank.",
		runs: []arguments{{ranks: 2, args: "-i 2"}},
		columns: []column{
			{name: "CPU seconds a second", unit: "s/s", field: 1, digits: 4},
			{name: "greatest resident size of a rank", unit: "KiB", field: 2},
		},
	}
}

func start() measurement {
	return measurement{
		name: "init", title: "Starting a job", program: "init", key: "ranks", seconds: 14, read: readInit,
		ungauged: true,
		about: "A job that joins and ends: wall time of the whole command, and the greatest resident size of a " +
			"rank.",
		runs: []arguments{{ranks: 2, key: 2}, {ranks: 16, key: 16}, {ranks: 64, key: 64}},
		columns: []column{
			{name: "whole command", unit: "ms", field: 1},
			{name: "greatest resident size of a rank", unit: "KiB", field: 2},
		},
	}
}

func overlap() measurement {
	m := measurement{
		name: "overlap", title: "Transfers under computation", program: "overlap", key: "bytes", seconds: 7,
		about: "How much of a transfer is hidden when a rank computes between Isend or Irecv and Wait, without any " +
			"call of the library, for about twice as long as the transfer takes alone. The other rank is in its " +
			"blocking Recv or Send.",
		runs: []arguments{{ranks: 2, args: "-m 4194304:4194304 --time 0.2"}},
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
	more := a.peerArgs
	if ours {
		more = a.ownArgs
	}
	return strings.Fields(a.args + " " + more)
}
