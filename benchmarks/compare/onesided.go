package main

import "strings"

// oneSidedPlan is what is measured of operations on windows.
func oneSidedPlan() []measurement {
	all := []measurement{
		oneSidedSizes("put", "Put", "Put and Flush: rank 0 writes the memory of rank 1"),
		oneSidedSizes("get", "Get", "Get and Flush: rank 0 reads the memory of rank 1"),
		oneSidedWord("accumulate", "Accumulate", "acc_latency", "Accumulate (sum of one int64) and Flush"),
		oneSidedWord("fetch_op", "FetchOp", "fop_latency", "FetchOp (sum of one int64) and Flush"),
		oneSidedWord("compare_swap", "CompareAndSwap", "cas_latency", "CompareAndSwap of one int64 and Flush"),
		oneSidedWord("put_lock", "Lock, Put, Unlock", "put_latency -s lock", "Lock, Put of 8 bytes and Unlock"),
		oneSidedWord("put_fence", "Put between fences", "put_latency -s fence",
			"Put of 8 bytes between fences, the two ranks by turns: half of a turn of both, which has three calls of Fence"),
		oneSidedWord("put_pscw", "Put between Start and Complete", "put_latency -s pscw",
			"Start, Put of 8 bytes and Complete at one rank, Post and Wait at the other, the two ranks by turns: half of a "+
				"turn of both"),
		fetchOpRate(),
	}
	for i := range all {
		all[i].program = "onesided"
		all[i].about += " The library allocates the memory of the window."
	}
	return all
}

func oneSidedSizes(name, title, about string) measurement {
	return measurement{
		name: name, title: title, key: "bytes", sizes: true, seconds: 6,
		about: about + ", which waits in a receive.",
		runs:  []arguments{{ranks: 2, args: name + "_latency -m 8:4194304 --time 0.02"}},
		columns: []column{
			{name: strings.ToLower(title) + " and flush", unit: "µs", field: 1, digits: 2},
		},
	}
}

func oneSidedWord(name, title, args, about string) measurement {
	return measurement{
		name: name, title: title, key: "bytes", seconds: 4, about: about + ".",
		runs:    []arguments{{ranks: 2, args: args + " -m 8:8 --time 0.1"}},
		columns: []column{{name: "time", unit: "µs", field: 1, digits: 3}},
	}
}

func fetchOpRate() measurement {
	return measurement{
		name: "fetch_op_rate", title: "FetchOp of all ranks on one word", key: "ranks", seconds: 10, limit: crowdedLimit,
		about: "All ranks add to one int64 of rank 0 with FetchOp and Flush at once: operations a second of all ranks " +
			"together.",
		runs: []arguments{
			{ranks: 2, key: 2, args: "fop_rate --time 0.1"},
			// MPICH takes time slices for an operation where ranks outnumber the cores: a warm-up for a time has no end.
			{ranks: 8, key: 8, args: "fop_rate", peerArgs: "-i 500 -x 10", ownArgs: "-i 20000 -x 200 --warm-time 0.3"},
		},
		columns: []column{{name: "operations a second", field: 1, higher: true}},
	}
}
