package main

import "github.com/gorun-mpi/mpi"

const (
	root        = 0
	elementSize = 8 // of a float64
	neighbors   = 2
)

// operation is a collective call, in its three forms.
type operation struct {
	name, title string // OSU's
	reduces     bool
	neighbors   bool // of a ring, in which each rank has the one before it and the one after it
	// eachSent and eachRecv are whether a rank has a block for each rank, or neighbour, to send, or to receive.
	eachSent, eachRecv bool
	layouts            bool // of bytes, one for each block

	call  func(b *buffers) error
	start func(b *buffers) (*mpi.Request, error)
	keep  func(b *buffers) (*mpi.Request, error)
}

func (o *operation) named(name string) bool { return o.name == name }

var operations = []operation{
	{
		name: "allgather", title: "Allgather", eachRecv: true,
		call:  func(b *buffers) error { return mpi.Allgather(b.world, b.send, b.recv) },
		start: func(b *buffers) (*mpi.Request, error) { return mpi.Iallgather(b.world, b.send, b.recv) },
		keep:  func(b *buffers) (*mpi.Request, error) { return mpi.AllgatherInit(b.world, b.send, b.recv) },
	},
	{
		name: "allgatherv", title: "Allgatherv", eachRecv: true,
		call:  func(b *buffers) error { return mpi.Allgatherv(b.world, b.send, b.received) },
		start: func(b *buffers) (*mpi.Request, error) { return mpi.Iallgatherv(b.world, b.send, b.received) },
		keep:  func(b *buffers) (*mpi.Request, error) { return mpi.AllgathervInit(b.world, b.send, b.received) },
	},
	{
		name: "allreduce", title: "Allreduce", reduces: true,
		call:  func(b *buffers) error { return mpi.Allreduce(b.world, b.in, b.out, mpi.Sum) },
		start: func(b *buffers) (*mpi.Request, error) { return mpi.Iallreduce(b.world, b.in, b.out, mpi.Sum) },
		keep:  func(b *buffers) (*mpi.Request, error) { return mpi.AllreduceInit(b.world, b.in, b.out, mpi.Sum) },
	},
	{
		name: "alltoall", title: "All-to-All Personalized Exchange", eachSent: true, eachRecv: true,
		call:  func(b *buffers) error { return mpi.Alltoall(b.world, b.send, b.recv) },
		start: func(b *buffers) (*mpi.Request, error) { return mpi.Ialltoall(b.world, b.send, b.recv) },
		keep:  func(b *buffers) (*mpi.Request, error) { return mpi.AlltoallInit(b.world, b.send, b.recv) },
	},
	{
		name: "alltoallv", title: "All-to-Allv Personalized Exchange", eachSent: true, eachRecv: true,
		call:  func(b *buffers) error { return mpi.Alltoallv(b.world, b.sent, b.received) },
		start: func(b *buffers) (*mpi.Request, error) { return mpi.Ialltoallv(b.world, b.sent, b.received) },
		keep:  func(b *buffers) (*mpi.Request, error) { return mpi.AlltoallvInit(b.world, b.sent, b.received) },
	},
	{
		name: "alltoallw", title: "All-to-Allw Personalized Exchange", eachSent: true, eachRecv: true, layouts: true,
		call:  func(b *buffers) error { return mpi.Alltoallw(b.world, b.send, b.to, b.recv, b.from) },
		start: func(b *buffers) (*mpi.Request, error) { return mpi.Ialltoallw(b.world, b.send, b.to, b.recv, b.from) },
		keep: func(b *buffers) (*mpi.Request, error) {
			return mpi.AlltoallwInit(b.world, b.send, b.to, b.recv, b.from)
		},
	},
	{
		name: "barrier", title: "Barrier",
		call:  func(b *buffers) error { return mpi.Barrier(b.world) },
		start: func(b *buffers) (*mpi.Request, error) { return mpi.Ibarrier(b.world) },
		keep:  func(b *buffers) (*mpi.Request, error) { return mpi.BarrierInit(b.world) },
	},
	{
		name: "bcast", title: "Broadcast",
		call:  func(b *buffers) error { return mpi.Bcast(b.world, b.recv, root) },
		start: func(b *buffers) (*mpi.Request, error) { return mpi.Ibcast(b.world, b.recv, root) },
		keep:  func(b *buffers) (*mpi.Request, error) { return mpi.BcastInit(b.world, b.recv, root) },
	},
	{
		name: "exscan", title: "Exscan", reduces: true,
		call:  func(b *buffers) error { return mpi.Exscan(b.world, b.in, b.out, mpi.Sum) },
		start: func(b *buffers) (*mpi.Request, error) { return mpi.Iexscan(b.world, b.in, b.out, mpi.Sum) },
		keep:  func(b *buffers) (*mpi.Request, error) { return mpi.ExscanInit(b.world, b.in, b.out, mpi.Sum) },
	},
	{
		name: "gather", title: "Gather", eachRecv: true,
		call:  func(b *buffers) error { return mpi.Gather(b.world, b.send, b.recv, root) },
		start: func(b *buffers) (*mpi.Request, error) { return mpi.Igather(b.world, b.send, b.recv, root) },
		keep:  func(b *buffers) (*mpi.Request, error) { return mpi.GatherInit(b.world, b.send, b.recv, root) },
	},
	{
		name: "gatherv", title: "Gatherv", eachRecv: true,
		call:  func(b *buffers) error { return mpi.Gatherv(b.world, b.send, b.received, root) },
		start: func(b *buffers) (*mpi.Request, error) { return mpi.Igatherv(b.world, b.send, b.received, root) },
		keep:  func(b *buffers) (*mpi.Request, error) { return mpi.GathervInit(b.world, b.send, b.received, root) },
	},
	{
		name: "neighbor_allgather", title: "Neighborhood Allgather", neighbors: true, eachRecv: true,
		call:  func(b *buffers) error { return mpi.NeighborAllgather(b.ring, b.send, b.recv) },
		start: func(b *buffers) (*mpi.Request, error) { return mpi.IneighborAllgather(b.ring, b.send, b.recv) },
		keep:  func(b *buffers) (*mpi.Request, error) { return mpi.NeighborAllgatherInit(b.ring, b.send, b.recv) },
	},
	{
		name: "neighbor_allgatherv", title: "Neighborhood Allgatherv", neighbors: true, eachRecv: true,
		call:  func(b *buffers) error { return mpi.NeighborAllgatherv(b.ring, b.send, b.received) },
		start: func(b *buffers) (*mpi.Request, error) { return mpi.IneighborAllgatherv(b.ring, b.send, b.received) },
		keep:  func(b *buffers) (*mpi.Request, error) { return mpi.NeighborAllgathervInit(b.ring, b.send, b.received) },
	},
	{
		name: "neighbor_alltoall", title: "Neighborhood Alltoall", neighbors: true, eachSent: true, eachRecv: true,
		call:  func(b *buffers) error { return mpi.NeighborAlltoall(b.ring, b.send, b.recv) },
		start: func(b *buffers) (*mpi.Request, error) { return mpi.IneighborAlltoall(b.ring, b.send, b.recv) },
		keep:  func(b *buffers) (*mpi.Request, error) { return mpi.NeighborAlltoallInit(b.ring, b.send, b.recv) },
	},
	{
		name: "neighbor_alltoallv", title: "Neighborhood Alltoallv", neighbors: true, eachSent: true, eachRecv: true,
		call:  func(b *buffers) error { return mpi.NeighborAlltoallv(b.ring, b.sent, b.received) },
		start: func(b *buffers) (*mpi.Request, error) { return mpi.IneighborAlltoallv(b.ring, b.sent, b.received) },
		keep:  func(b *buffers) (*mpi.Request, error) { return mpi.NeighborAlltoallvInit(b.ring, b.sent, b.received) },
	},
	{
		name: "neighbor_alltoallw", title: "Neighborhood Alltoallw", neighbors: true, eachSent: true, eachRecv: true,
		layouts: true,
		call:    func(b *buffers) error { return mpi.NeighborAlltoallw(b.ring, b.send, b.to, b.recv, b.from) },
		start: func(b *buffers) (*mpi.Request, error) {
			return mpi.IneighborAlltoallw(b.ring, b.send, b.to, b.recv, b.from)
		},
		keep: func(b *buffers) (*mpi.Request, error) {
			return mpi.NeighborAlltoallwInit(b.ring, b.send, b.to, b.recv, b.from)
		},
	},
	{
		name: "reduce", title: "Reduce", reduces: true,
		call:  func(b *buffers) error { return mpi.Reduce(b.world, b.in, b.out, mpi.Sum, root) },
		start: func(b *buffers) (*mpi.Request, error) { return mpi.Ireduce(b.world, b.in, b.out, mpi.Sum, root) },
		keep:  func(b *buffers) (*mpi.Request, error) { return mpi.ReduceInit(b.world, b.in, b.out, mpi.Sum, root) },
	},
	{
		name: "reduce_scatter", title: "Reduce_scatter", reduces: true,
		call: func(b *buffers) error { return mpi.ReduceScatter(b.world, b.in, b.out, b.counts, mpi.Sum) },
		start: func(b *buffers) (*mpi.Request, error) {
			return mpi.IreduceScatter(b.world, b.in, b.out, b.counts, mpi.Sum)
		},
		keep: func(b *buffers) (*mpi.Request, error) {
			return mpi.ReduceScatterInit(b.world, b.in, b.out, b.counts, mpi.Sum)
		},
	},
	{
		name: "reduce_scatter_block", title: "Reduce_scatter_block", reduces: true, eachSent: true,
		call:  func(b *buffers) error { return mpi.ReduceScatterBlock(b.world, b.in, b.out, mpi.Sum) },
		start: func(b *buffers) (*mpi.Request, error) { return mpi.IreduceScatterBlock(b.world, b.in, b.out, mpi.Sum) },
		keep: func(b *buffers) (*mpi.Request, error) {
			return mpi.ReduceScatterBlockInit(b.world, b.in, b.out, mpi.Sum)
		},
	},
	{
		name: "scan", title: "Scan", reduces: true,
		call:  func(b *buffers) error { return mpi.Scan(b.world, b.in, b.out, mpi.Sum) },
		start: func(b *buffers) (*mpi.Request, error) { return mpi.Iscan(b.world, b.in, b.out, mpi.Sum) },
		keep:  func(b *buffers) (*mpi.Request, error) { return mpi.ScanInit(b.world, b.in, b.out, mpi.Sum) },
	},
	{
		name: "scatter", title: "Scatter", eachSent: true,
		call:  func(b *buffers) error { return mpi.Scatter(b.world, b.send, b.recv, root) },
		start: func(b *buffers) (*mpi.Request, error) { return mpi.Iscatter(b.world, b.send, b.recv, root) },
		keep:  func(b *buffers) (*mpi.Request, error) { return mpi.ScatterInit(b.world, b.send, b.recv, root) },
	},
	{
		name: "scatterv", title: "Scatterv", eachSent: true,
		call:  func(b *buffers) error { return mpi.Scatterv(b.world, b.sent, b.recv, root) },
		start: func(b *buffers) (*mpi.Request, error) { return mpi.Iscatterv(b.world, b.sent, b.recv, root) },
		keep:  func(b *buffers) (*mpi.Request, error) { return mpi.ScattervInit(b.world, b.sent, b.recv, root) },
	},
}

func names() (all []string) {
	for _, o := range operations {
		all = append(all, o.name)
	}
	return all
}
