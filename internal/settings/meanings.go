// Code generated from the comments of Values by go generate; DO NOT EDIT.

package settings

var meanings = map[string]string{
	"Transports":     "How ranks may reach each other: names of transports separated by commas, in order of preference. Each pair of ranks uses the first that connects it. Auto: shm, verbs (where it was built in), tcp.",
	"EagerMax":       "Messages of at most this size are sent at once, longer ones ask first. Auto: what measured best for the transport (shm: 32KiB; tcp: 64KiB).",
	"UnexpectedMax":  "The memory of a rank for messages that come before their receive is posted; senders wait when it is full.",
	"Spin":           "How long a waiting rank polls before it sleeps in the kernel; 0: it never polls. Auto: adaptive, and 0 where ranks outnumber CPUs.",
	"Log":            "What is logged to standard error; debug says which transport and scheme a rank chose for each peer, and why.",
	"Timeout":        "How long one step of starting up, or making a connection to another rank, may take. The other process may be stopped meanwhile, in a debugger for example.",
	"PeerTimeout":    "How long a connection to another host may leave unanswered what was sent before that host counts as failed. This holds for the ranks there, and for a launcher there.",
	"Collectives":    "The algorithms of collective calls: operation:algorithm separated by commas, such as allreduce:ring,bcast:chain. Where one does not fit a call, and for other operations, the table of gorun info --collectives decides. It must be the same for all ranks.",
	"CollCheck":      "Whether ranks first compare what they call in a collective call: operation, root, type, count. A difference is an error that names the ranks. It costs a round trip along a tree. auto: in RunLocal only. It must be the same for all ranks.",
	"ShmRing":        "The data area of one shared-memory ring, that is of one direction between two ranks. Auto: chosen by the number of ranks on the host.",
	"ShmCMA":         "1: a rank moves large messages of its host by reading and writing the other process's memory (CMA), if the kernel allows it. 0: it copies them through shared memory, and under Yama no other rank may reach its own memory.",
	"TCPInterfaces":  "The addresses of TCP: interfaces (eth0, ib*) and networks (10.1.0.0/16, fd00::/8) separated by commas; ! excludes. Not set: all addresses.",
	"TCPPorts":       "The ports TCP listens on, for example 40000-40999. Not set: any free port.",
	"TCPTLS":         "1: TCP connections are encrypted (TLS 1.3, with keys made for the job). It must be the same for all ranks.",
	"VerbsDevices":   "The RDMA devices and ports: names such as mlx5_0:1,mlx5_1 separated by commas; ! excludes. Not set: the first active port.",
	"VerbsPartition": "The InfiniBand partition: a P_Key such as 8001 that gorun info shows for the port. Not set: the first partition with full membership.",
	"VerbsLibrary":   "The path of the libibverbs that is opened, for example of the software HCA. Not set: the system's libibverbs.so.1.",
	"VerbsClass":     "The traffic class of RoCE packets: four times the DSCP, plus 2 where switches mark congestion. 106 is DSCP 26 and ECN, as UCX has it; InfiniBand's class is 0.",
	"VerbsRegister":  "From this size on, messages in ordinary memory are registered and read in place. Shorter ones are copied through registered buffers. Auto: measured when the device is opened.",
	"VerbsCache":     "How many registrations of ordinary memory are kept for the next message in the same memory. 0: none, a registration ends with its message.",
	"TagMatching":    "Whether RDMA devices match tags and run rendezvous by themselves. auto: where the device can; on: an error where it cannot; off: software matches everything.",
	"UCXLibrary":     "The path of the libucp that is opened. Not set: the system's libucp.so.0.",
	"Job":            "The name of the job. A rank believes it only if the launcher on PMI_FD has the same name.",
	"Key":            "The key by which a rank that dials PMI_PORT and its launcher prove to each other that they belong to the job. Init takes it out of the environment.",
	"LocalRank":      "The number of this rank among those of its host, for programs.",
	"LocalSize":      "How many ranks of the job run on this host. 0: the launcher does not say. A rank believes it of gorun only.",
	"CPUs":           "How many CPUs the ranks on this host may use together, by affinity mask and cgroup quota. 0: the launcher does not say. A rank believes it of gorun only.",
}
