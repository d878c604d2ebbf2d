package main

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// collectivePlan is what is measured of collective calls: three rounds of all of it take less than five minutes.
func collectivePlan() []measurement {
	all := []measurement{kernel(), barriers(), collectives(2), collectives(8), collectives(32), overlapCollective(),
		collectivesBetweenHosts()}
	for i := range all {
		all[i].program = cmp.Or(all[i].program, "collective")
	}
	return all
}

const (
	// crowdedLimit is that of more ranks than cores. MPICH polls without giving way: a call takes time slices, and a run
	// would take minutes.
	crowdedLimit = 10 * time.Second

	osuLoop = " As OSU's programs do, each rank reads the clock around each call and enters a barrier before the next " +
		"one: the mean over the ranks."
)

func kernel() measurement {
	return measurement{
		name: "kernel", title: "The sum in a reduction", program: "kernel", key: "bytes", seconds: 4,
		quickTime: 2,
		about: "The sum of float64 vectors in a reduction, b = a + b, of a single rank, compared with a copy of as many " +
			"bytes, b = a. At 1.0 the sum is as fast as the copy (copy of Go's runtime for ours, memcpy for theirs); " +
			"the goal is 0.9. Theirs is MPI_Reduce_local; ours is the loop that all reductions call.",
		runs: []arguments{{ranks: 1, args: "-m 1048576:1048576 --time 0.2",
			quick: "-m 1048576:1048576 --time 0.1 --warm-time 0.2"}},
		columns: []column{
			{name: "rate of the sum / rate of a copy", field: 1, higher: true, digits: 2},
			{name: "sum", unit: "µs", field: 2, digits: 1, aside: true},
			{name: "copy", unit: "µs", field: 3, digits: 1, aside: true},
		},
	}
}

func barriers() measurement {
	return measurement{
		name: "barrier", title: "Barrier", key: "ranks", seconds: 6, quickTime: 2, read: readBarrier,
		limit: crowdedLimit,
		about: "Barrier, with one rank to a core, and with more ranks than cores: the mean time of a call.",
		runs: []arguments{
			{ranks: 2, key: 2, args: "barrier --time 0.1", quick: "barrier --time 0.1 --warm-time 0.3"},
			{ranks: 8, key: 8, args: "barrier -i 2000 -x 50 --warm-time 0.3"},
			{ranks: 32, key: 32, args: "barrier -i 500 -x 10 --warm-time 0.3"},
		},
		columns: []column{{name: "a call", unit: "µs", field: 1, digits: 2}},
	}
}

// readBarrier reads OSU's line, which has no size.
func readBarrier(a arguments, out string, _ time.Duration) ([]line, error) {
	var last string
	for text := range strings.Lines(out) {
		if last = strings.TrimSpace(text); strings.HasPrefix(last, "#") {
			last = ""
		}
	}
	us, err := strconv.ParseFloat(last, 64)
	if err != nil {
		return nil, fmt.Errorf("printed no time of a barrier: %q", firstLine(out))
	}
	return []line{{Key: int64(a.ranks), Values: []float64{us}}}, nil
}

var compared = []string{"bcast", "reduce", "allreduce", "allgather", "alltoall"}

// collectivesOf has no runs yet.
func collectivesOf(ranks int) measurement {
	return measurement{
		name: fmt.Sprintf("coll%d", ranks), key: "bytes", columns: collectiveColumns(compared),
		title: fmt.Sprintf("Collective calls of %d ranks", ranks),
		about: fmt.Sprintf("Bcast, Reduce and Allreduce (float64, sum), Allgather, Alltoall of %d ranks; bytes are "+
			"what one rank has for another rank, or for all.", ranks) + osuLoop,
	}
}

func collectives(ranks int) measurement {
	m := collectivesOf(ranks)
	of, small := strings.Join(compared, ","), " -m 8:65536"
	switch ranks {
	case 2:
		m.seconds, m.quickTime = 7, 4
		m.runs = []arguments{{ranks: 2, args: of + " -m 8:4194304 --time 0.01",
			quick: of + " -m 8:4194304 --time 0.003 --warm-time 0.3"}}
	case 8:
		m.seconds, m.limit = 5, crowdedLimit
		m.runs = []arguments{{ranks: 8, args: of + small + " -i 200 -x 10 --warm-time 0.3"}}
	case 32:
		m.seconds, m.limit = 12, crowdedLimit
		m.runs = []arguments{{ranks: 32, args: of + small + " -i 10 -x 2"}}
	}
	if m.limit > 0 {
		m.about += " There are more ranks than cores: waiting ranks must make room for those that have work."
	}
	return m
}

func overlapCollective() measurement {
	return measurement{
		name: "overlap_coll", title: "Iallreduce under computation", key: "bytes", seconds: 6,
		about: "The time of Iallreduce (float64, sum), a computation, and Wait. All ranks compute between the two calls, " +
			"without any call of the library, for as long as the two take alone; hidden is the part of that time which " +
			"the whole does not take longer than the computation. The two ranks have two cores: a core that combines " +
			"does not compute.",
		runs: []arguments{{ranks: 2, args: "iallreduce -m 1048576:1048576 --time 0.2"}},
		columns: []column{
			{name: "Iallreduce, computation, Wait", unit: "µs", field: 1, digits: 1},
			{name: "Iallreduce and Wait alone", unit: "µs", field: 3, digits: 1, aside: true},
			{name: "hidden", unit: "%", field: 4, higher: true, aside: true},
		},
	}
}

func collectivesBetweenHosts() measurement {
	of := []string{"bcast", "allreduce"}
	return measurement{
		name: "tcp-coll", title: "Collective calls between hosts", key: "bytes", seconds: 11, hosts: true,
		limit:   crowdedLimit,
		columns: collectiveColumns(of),
		about: "Bcast and Allreduce (float64, sum) of four ranks, two on each of two hosts (network namespaces joined " +
			"by a bridge), over TCP between them." + osuLoop + " Where the cores are fewer than four, the ranks of " +
			"each host are pinned to its half of them, since hosts share none, and waiting ranks must make room.",
		runs: []arguments{{ranks: 4, args: strings.Join(of, ",") + " -m 8:4194304 --time 0.02"}},
	}
}

// collectiveColumns are those of several operations, in their order.
func collectiveColumns(of []string) (columns []column) {
	for i, name := range of {
		name = strings.ToUpper(name[:1]) + name[1:]
		columns = append(columns, column{name: name, unit: "µs", field: i + 1, digits: 2})
	}
	return columns
}
