package main

import (
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
)

// coresPlan is the set of -cores: this host alone, and each rank with a core of its own. A round of all of it takes
// about a minute and a half.
func coresPlan(cores int) []measurement {
	all := []measurement{roomyBarriers(cores)}
	for _, ranks := range roomyRanks(cores) {
		all = append(all, roomyCollectives(ranks))
	}
	for i := range all {
		all[i].program = "collective"
	}
	bibw := bandwidth("bibw", "Bandwidth, both directions at once", "of both directions together", 8)
	bibw.runs[0].quick = "-W 64 -m 1:1048576 --time 0.01 --warm-time 0.3"
	return append(all, bibw, pairsLatency(cores/2), pairsRate(cores/2), roomyFanIn(cores), roomyHalo(cores))
}

// roomyRanks are the numbers of ranks of collective calls.
func roomyRanks(cores int) (all []int) {
	for _, ranks := range []int{4, 8, 16} {
		if ranks <= cores {
			all = append(all, ranks)
		}
	}
	return all
}

const aCoreEach = " Each rank has a core of its own."

func roomyBarriers(cores int) measurement {
	m := barriers()
	m.about, m.limit, m.runs = "Barrier: the mean time of a call."+aCoreEach, 0, nil
	for _, ranks := range roomyRanks(cores) {
		m.runs = append(m.runs, arguments{ranks: ranks, key: int64(ranks), args: "barrier --time 0.1",
			quick: "barrier --time 0.05 --warm-time 0.3"})
	}
	m.seconds, m.quickTime = 4*float64(len(m.runs)), 2*float64(len(m.runs))
	return m
}

func roomyCollectives(ranks int) measurement {
	m := collectivesOf(ranks)
	m.about += aCoreEach
	m.seconds, m.quickTime = 15, 6
	of := strings.Join(compared, ",")
	m.runs = []arguments{{ranks: ranks, args: of + " -m 8:1048576 --time 0.01",
		quick: of + " -m 8:1048576 --time 0.003 --warm-time 0.3"}}
	return m
}

func pairsLatency(pairs int) measurement {
	m := multiLatency()
	m.title, m.sizes, m.seconds, m.quickTime = "Latency, "+pairsText(pairs)+" at once", true, 7, 4
	m.about = "Ping-pong with blocking Send and Recv of " + pairsText(pairs) + " of ranks at the same time, the mean " +
		"of all." + aCoreEach
	m.runs = []arguments{{ranks: 2 * pairs, args: fmt.Sprintf("-p %d -m 1:1048576 --time 0.02", pairs),
		quick: fmt.Sprintf("-p %d -m 1:1048576 --time 0.01 --warm-time 0.3", pairs)}}
	return m
}

// pairsRate has the rate aside, since its ratios are the bandwidth's.
func pairsRate(pairs int) measurement {
	m := messageRate()
	m.title, m.sizes, m.seconds, m.quickTime = "Bandwidth and message rate, "+pairsText(pairs)+" at once", true, 8, 5
	m.about = "Bytes and messages a second of " + pairsText(pairs) + " of ranks together, windows of 64, each of " +
		"them answered; MB are 10^6 bytes." + aCoreEach
	m.runs = []arguments{{ranks: 2 * pairs, args: fmt.Sprintf("-p %d -W 64 -m 1:1048576 --time 0.02", pairs),
		quick: fmt.Sprintf("-p %d -W 64 -m 1:1048576 --time 0.01 --warm-time 0.3", pairs)}}
	rate := m.columns[0]
	rate.aside = true
	m.columns = []column{{name: "bandwidth", unit: "MB/s", field: 1, higher: true}, rate}
	return m
}

func roomyFanIn(cores int) measurement {
	m := fan("fan_in", "to rank 0 from")
	m.title, m.sizes, m.seconds, m.quickTime = fmt.Sprintf("Message rate to rank 0 from %d", cores-1), true, 15, 5
	m.about = fmt.Sprintf("Messages a second to rank 0 from %d other ranks, windows of 64 with each.", cores-1) +
		aCoreEach
	m.runs = []arguments{{ranks: cores, args: "-W 64 -m 1:4194304 --time 0.02",
		quick: "-W 64 -m 1:65536 --time 0.01 --warm-time 0.3"}}
	return m
}

func roomyHalo(cores int) measurement {
	m := halo()
	m.about += aCoreEach
	for i := range m.runs {
		m.runs[i].ranks = cores
	}
	m.seconds, m.quickTime = 12, 9
	return m
}

func pairsText(n int) string {
	if n == 1 {
		return "one pair"
	}
	return strconv.Itoa(n) + " pairs"
}

// checkCores refuses a set that this process cannot measure here.
func checkCores(cores, cpus, here int) error {
	switch {
	case cores < 2:
		return fmt.Errorf("-cores %d: at least 2, the ranks of a pair", cores)
	case cores > here:
		return fmt.Errorf("-cores %d: this process may use %d cores (%d CPUs), and each of %d ranks needs a core of "+
			"its own; give a smaller number, or let the process use more CPUs (taskset, the container's limit, "+
			"GOMAXPROCS)", cores, here, cpus, cores)
	}
	return nil
}

// coresFolder is the folder of the results of -cores: a page there has the name of a page of the whole set.
func coresFolder(cores int) string { return filepath.Join(resultsDir, fmt.Sprintf("cores-%d", cores)) }
