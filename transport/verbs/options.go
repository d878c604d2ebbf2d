package verbs

import (
	"cmp"
	"time"

	"github.com/gorun-mpi/mpi/transport/tcp"
)

// defaultPatience is the PeerTimeout of transport/tcp.
const defaultPatience = 30 * time.Second

// Options of a device. Rank and Size are of the world.
type Options struct {
	Rank, Size int
	Library    string // path of libibverbs, or of the software HCA; "": the system's
	Devices    string // GORUN_VERBS_DEV: which devices and ports may be used; "": all
	Partition  string // GORUN_VERBS_PKEY: the partition that queue pairs are in; "": see topology.ChoosePKey
	// TrafficClass of packets over Ethernet: DSCP and ECN bits, which lossless networks go by.
	TrafficClass int
	// ServiceLevel of packets, by which the fabric chooses their virtual lane or priority.
	ServiceLevel int
	Tags         string // GORUN_TM: off (or ""), or on
	GPUDirect    string // GORUN_GPUDIRECT: auto (or ""), on or off
	// LocalRank is the number of this rank among the ranks of its host, and Nodes are the NUMA nodes of its CPUs: they
	// decide which of several ports it uses.
	LocalRank int
	Nodes     []int
	// RegisterFrom is from which length on a message in ordinary memory is registered and read; a shorter one is copied
	// through buffers that are registered already. 0: measured when the device is opened.
	RegisterFrom int
	// Cache is how many registrations of ordinary memory are kept for the next message in the same memory. 0: none.
	Cache int
	// ReceiveMemory is how many bytes the buffers may take into which messages of all peers come: their number follows the
	// number of peers. 1,024 are there in any case.
	ReceiveMemory int64
	// Control is how the ranks find each other: see tcp.Options.
	Control tcp.Options
	Log     func(msg string, args ...any) // what an operator should see; nil: silent
	Debug   func(msg string, args ...any) // what was chosen, and why; nil: silent

	// Root has sys below it; "": /.
	Root string

	// For tests; 0: as it should be.
	entries    int           // of the completion queue
	closing    time.Duration // that Close may take to deliver
	deepQueues int           // queue pairs of the whole depth
	receives   int           // receive buffers in the beginning
	// patience is how long the device sends again what nothing answers; 0: Control.PeerTimeout.
	patience time.Duration
	tails    time.Duration // between two looks of watchTails
}

func (o *Options) fill() {
	if o.Log == nil {
		o.Log = func(string, ...any) {}
	}
	if o.Debug == nil {
		o.Debug = func(string, ...any) {}
	}
	if o.Root == "" {
		o.Root = "/"
	}
	o.patience = cmp.Or(o.patience, o.Control.PeerTimeout, defaultPatience)
	o.Control.Rank, o.Control.Size, o.Control.Protocol = o.Rank, o.Size, controlProtocol
}
