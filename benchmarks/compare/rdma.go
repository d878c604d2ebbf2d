package main

import "time"

// rdmaPlan is what is measured over soft-RoCE in a guest. A round of all of it takes about eight minutes: a peer's
// short run of a second costs ten to start there.
func rdmaPlan() []measurement {
	all := []measurement{rdmaLatency(), rdmaBandwidth(), rdmaAlloc()}
	for i := range all {
		all[i].guest, all[i].libraries, all[i].limit = true, []string{gorun, openMPI, perftest}, guestLimit
	}
	return all
}

const (
	// shortRuns are made in each guest. An emulated processor is fast or slow for seconds at a time, so that the median
	// of many short runs says more than the mean of a long one.
	shortRuns = 7
	// guestLimit leaves the guest's own limit, guestTimeout, time to speak first.
	guestLimit = guestTimeout + 30*time.Second
)

const inGuest = " Software RDMA (soft-RoCE, the kernel's rxe) in one guest, a machine whose processors QEMU " +
	"emulates, with both ranks in it: this compares the costs of protocols over the same device, not the speed of " +
	"any hardware. Open MPI goes over UCX (rc). "

func rdmaLatency() measurement {
	return measurement{
		name: "rdma-latency", title: "Latency over RDMA", program: "latency", key: "bytes", seconds: 125,
		about: "Half of a round trip of two ranks that play ping-pong with blocking Send and Recv." + inGuest +
			"perftest is ib_send_lat, which polls the bare verbs; its typical time is the median of a run, as ours " +
			"is. Open MPI's program prints only the mean.",
		runs: []arguments{{ranks: 2, args: "-m 8:8 -i 500 -x 20", ownArgs: "-f",
			tool: "ib_send_lat -s 8 -n 500"}},
		columns: []column{
			{name: "one way, mean", unit: "µs", field: latencyMean, digits: 1},
			{name: "one way, typical (median)", unit: "µs", field: latencyTypical, digits: 1},
		},
	}
}

func rdmaBandwidth() measurement {
	m := bandwidth("rdma-bw", "Bandwidth over RDMA", "from one rank to another", 175)
	m.program, m.sizes = "bw", false
	m.about += inGuest + "perftest is ib_read_bw: READs from one buffer into another, both registered once. Its MB " +
		"are 2^20 bytes and were converted. Ours are ordinary Go slices, registered for each message " +
		"(GORUN_VERBS_REG=64K) and READ by the receiver."
	m.runs = []arguments{{ranks: 2, args: "-W 64 -m 262144:262144 -i 3 -x 1",
		tool: "ib_read_bw -s 262144 -n 200"}}
	m.columns[0].digits = 1
	return m
}

func rdmaAlloc() measurement {
	m := rdmaBandwidth()
	m.name, m.title = "rdma-bw-alloc", "Bandwidth over RDMA, buffers from mpi.Alloc"
	m.about = "The same with buffers from mpi.Alloc (ours), which are registered once as perftest's are and always " +
		"READ by the receiver, and MPI_Alloc_mem (Open MPI): windows of 64 Isend and 64 Irecv; MB are 10^6 bytes." +
		inGuest +
		"perftest is ib_read_bw; its MB are 2^20 bytes and were converted."
	m.runs[0].args = "--alloc " + m.runs[0].args
	return m
}
