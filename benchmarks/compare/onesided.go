package main

import (
	"fmt"
	"strings"

	"github.com/gorun-mpi/mpi/benchmarks/harness"
)

// oneSidedPlan is what is measured of operations on windows.
func oneSidedPlan() []measurement {
	all := []measurement{
		oneSidedSizes("put", "Put", "Put and Flush: rank 0 writes the memory of rank 1"),
		oneSidedSizes("get", "Get", "Get and Flush: rank 0 reads the memory of rank 1"),
		oneSidedWord("accumulate", "Accumulate", "acc_latency"+flushed, "Accumulate (sum of one int64) and Flush"),
		oneSidedWord("fetch_op", "FetchOp", "fop_latency"+flushed, "FetchOp (sum of one int64) and Flush"),
		oneSidedWord("compare_swap", "CompareAndSwap", "cas_latency"+flushed, "CompareAndSwap of one int64 and Flush"),
		oneSidedWord("put_lock", "Lock, Put, Unlock", "put_latency -s lock_exclusive",
			"Lock (Exclusive), Put of 8 bytes and Unlock"),
		fences(), fetchOpRate(),
	}
	for i := range all {
		all[i].libraries = []string{gorun, openMPI, mpich, bareMemory}
		all[i].about += " The library allocates the memory of the window. Bare memory is a loop in C without any library: " +
			"loads, stores and atomic instructions on memory that the processes share."
	}
	for _, o := range []struct{ name, operation, what string }{
		{"put", "put_latency", "Put"}, {"get", "get_latency", "Get"}, {"accumulate", "acc_latency", "Accumulate"},
		{"get_accumulate", "get_acc_latency", "GetAccumulate"}, {"fetch_op", "fop_latency", "FetchOp"},
		{"compare_swap", "cas_latency", "CompareAndSwap"},
	} {
		all = append(all, oneSidedCalls(o.name, o.operation, o.what+" of 8 bytes", "µs", "-m 8:8", harness.Syncs))
	}
	for _, o := range []struct {
		name, what string
		syncs      []string
	}{
		{"put_bw", "Bandwidth of Put", harness.Syncs}, {"get_bw", "Bandwidth of Get", harness.Syncs},
		{"put_bibw", "Bandwidth of Put in both directions", []string{"pscw", "fence"}},
	} {
		m := oneSidedCalls(o.name, o.name, o.what, "MB/s", "-W 64 -m 65536:65536", o.syncs)
		m.about += " The bytes of windows of 64 operations of 64 KiB; MB are 10^6 bytes."
		all = append(all, m)
	}
	for i := range all {
		all[i].program = "onesided"
	}
	return all
}

// flushed are the calls with which operations are compared: all of them are in one epoch of LockAll.
const flushed = " -s lock_all_flush"

func oneSidedSizes(name, title, about string) measurement {
	return measurement{
		name: name, title: title, key: "bytes", sizes: true, seconds: 8,
		about: about + ", which waits in a receive.",
		runs:  []arguments{{ranks: 2, args: name + "_latency" + flushed + " -m 8:4194304 --time 0.02"}},
		columns: []column{
			{name: strings.ToLower(title) + " and flush", unit: "µs", field: 1, digits: 3},
		},
	}
}

func oneSidedWord(name, title, args, about string) measurement {
	return measurement{
		name: name, title: title, key: "bytes", seconds: 5, about: about + ".",
		runs:    []arguments{{ranks: 2, args: args + " -m 8:8 --time 0.1"}},
		columns: []column{{name: "time", unit: "µs", field: 1, digits: 4}},
	}
}

func fences() measurement {
	return measurement{
		name: "fence", title: "Fence", key: "ranks", seconds: 10, limit: crowdedLimit,
		about: "Fence without any operation, with one rank to a core, and with more ranks than cores: the mean time of a " +
			"call.",
		runs: []arguments{
			{ranks: 2, key: 2, args: "fence_latency --time 0.1"},
			{ranks: 8, key: 8, args: "fence_latency -i 2000 -x 50 --warm-time 0.3"},
		},
		columns: []column{{name: "a call", unit: "µs", field: 1, digits: 2}},
	}
}

func fetchOpRate() measurement {
	const times = "fop_rate" + flushed
	return measurement{
		name: "fetch_op_rate", title: "FetchOp of all ranks on one word", key: "ranks", seconds: 20, limit: crowdedLimit,
		about: "All ranks add to one int64 of rank 0 with FetchOp and Flush at once: operations a second of all ranks " +
			"together, until the last rank has finished.",
		runs: []arguments{
			{ranks: 2, key: 2, args: times + " --time 0.1"},
			// MPICH takes time slices for an operation where ranks outnumber the cores: a warm-up for a time has no
			// end.
			{ranks: 8, key: 8, args: times, peerArgs: "-i 500 -x 10", ownArgs: "-i 20000 -x 200"},
			{ranks: 32, key: 32, args: times, peerArgs: "-i 100 -x 2", ownArgs: "-i 20000 -x 200"},
		},
		columns: []column{{name: "operations a second", field: 1, higher: true}},
	}
}

// oneSidedCalls is an operation in windows of each kind, with a column for the calls of each epoch.
func oneSidedCalls(name, operation, what, unit, args string, syncs []string) measurement {
	m := measurement{
		name: "win_" + name, title: what + " in each kind of window", key: "window", seconds: 15,
		about: what + " in a window of each kind: its memory is the library's (allocate), the program's (create), or " +
			"read and written in place by all ranks (shared), or attached to the window later (dynamic). The calls " +
			"that begin and end epochs are Lock (Shared) and Unlock; Lock (Exclusive) and Unlock; Flush or FlushLocal " +
			"in an epoch of Lock; LockAll and UnlockAll; Flush in an epoch of LockAll; Post, Start, Complete and Wait; Fence.",
	}
	digits, higher := 3, false
	if unit != "µs" {
		digits, higher = 0, true
	} else {
		m.about += " With the last two the ranks take turns, and half of the time of both counts."
	}
	for i, kind := range harness.WinKinds {
		m.runs = append(m.runs, arguments{ranks: 2, key: int64(i + 1), label: kind, args: fmt.Sprintf(
			"%s %s -w %s -s %s --time 0.02 --warm-time 0.3", operation, args, kind, strings.Join(syncs, ","))})
	}
	for i, sync := range syncs {
		m.columns = append(m.columns, column{name: sync, unit: unit, field: i + 1, higher: higher, digits: digits})
	}
	return m
}

// oneSidedBetweenHosts is what is measured of windows of ranks on two hosts.
func oneSidedBetweenHosts() []measurement {
	bw := bandwidth("tcp-put_bw", "Bandwidth of Put between hosts", "", 14)
	bw.about = "Bytes a second of windows of 64 operations with one Flush; MB are 10^6 bytes."
	bw.runs = []arguments{{ranks: 2, args: "put_bw -W 64" + flushed + " -m 65536:4194304 --time 0.1"}}
	all := []measurement{
		oneSidedWord("tcp-put", "Put between hosts", "put_latency"+flushed, "Put of 8 bytes and Flush"),
		oneSidedWord("tcp-get", "Get between hosts", "get_latency"+flushed, "Get of 8 bytes and Flush"),
		oneSidedWord("tcp-fetch_op", "FetchOp between hosts", "fop_latency"+flushed,
			"FetchOp (sum of one int64) and Flush"),
		bw,
	}
	for i := range all {
		all[i].program, all[i].libraries = "onesided", []string{gorun, openMPI, mpich}
		all[i].about += " Rank 0 has operations on the memory of rank 1, which waits in a receive, over TCP. One rank on " +
			"each of two hosts (network namespaces joined by a bridge), pinned to a core of its own."
	}
	return all
}
