package settings

import "time"

// Auto is a Duration that is left to the library. The other types have their zero value for it.
const Auto time.Duration = -1

// Values are the settings, one field for each variable. The type of a field is the syntax of the variable (see parse).
// The comment of a field is the meaning of the variable: docs/mpi-names.md has its first sentence; docs/settings.md,
// gorun info and the manual page have all of it. The tags are:
//
//	env      the variable
//	default  its value where it is not set or empty; only where this is "auto" the user may set it to auto
//	min, max its range
//	oneof    the values of a string
//	of       what it belongs to: shm, tcp, verbs, ucx, ofi or cuda; job: gorun sets it for its ranks, and a user should not
//	like     its nearest relative of Open MPI or UCX
//
// A value of type struct{} is not kept. After a change here: go generate ./internal/settings.
type Values struct {
	// How ranks may reach each other: names of transports separated by commas, in order of preference. Each pair of
	// ranks uses the first that connects it. A transport that is named must work on each host. Auto: shm, verbs (where it
	// was built in), tcp, less the ones that do not work.
	Transports []string `env:"GORUN_TRANSPORTS" default:"auto" like:"--mca btl"`

	// Messages of at most this size are sent at once, longer ones ask first. Auto: the size that measured best for
	// the transport (shm: 32KiB; tcp: 64KiB).
	EagerMax int64 `env:"GORUN_EAGER_MAX" default:"auto" like:"btl_sm_eager_limit"`

	// The memory of a rank for messages that come before their receive is posted; senders wait when it is full.
	UnexpectedMax int64 `env:"GORUN_UNEXPECTED_MAX" default:"64MiB"`

	// How long a waiting rank polls before it sleeps in the kernel; 0: not at all. Auto: adaptive.
	Spin time.Duration `env:"GORUN_SPIN" default:"auto" like:"mpi_yield_when_idle"`

	// The level of the log on standard error; at debug a rank says which transport and scheme it chose for each peer,
	// and why.
	Log string `env:"GORUN_LOG" default:"off" oneof:"off,error,warn,info,debug,trace" like:"btl_base_verbose"`

	// How long one step of starting up, or of making a connection to another rank, may take. The other process may be
	// stopped meanwhile, in a debugger for example.
	Timeout time.Duration `env:"GORUN_TIMEOUT" default:"60s" min:"1ms" max:"8760h"`

	// How long data sent to another host may stay unanswered before that host counts as failed. This holds for the ranks
	// there, and for a launcher there.
	PeerTimeout time.Duration `env:"GORUN_PEER_TIMEOUT" default:"30s" min:"1s" max:"8760h"`

	// The algorithms of collective calls: operation:algorithm separated by commas, such as allreduce:ring,bcast:chain.
	// Where one does not fit a call, and for other operations, the table of gorun info --collectives decides. It must be
	// the same for all ranks.
	Collectives string `env:"GORUN_COLL" like:"--mca coll_tuned_…_algorithm"`

	// The file that gorun tune has written, with the algorithms of collective calls and the eager limit that were best
	// when measured. Its lines come after GORUN_COLL and before the table. Not set: gorun-tuned.json next to the
	// program, or else gorun/tuned.json in the user's configuration directory, such as ~/.config. off: no file. gorun
	// reads the file and gives its ranks the text. All ranks must have the same lines, or Init fails. RunLocal reads no
	// file.
	Tuned string `env:"GORUN_TUNED" like:"--mca coll_tuned_dynamic_rules_filename"`

	// Whether ranks first compare what they call in a collective call: operation, root, type, count. A difference is an
	// error that names the ranks. It costs a round trip along a tree. auto: in RunLocal only. It must be the same for all
	// ranks.
	CollCheck string `env:"GORUN_COLL_CHECK" default:"auto" oneof:"auto,0,1"`

	// The data area of one shared-memory ring, which carries one direction between two ranks. Auto: chosen by the number
	// of ranks on the host.
	ShmRing int64 `env:"GORUN_SHM_RING" default:"auto" of:"shm" like:"btl_sm_fifo_size"`

	// 1: a rank moves large messages of its host by reading and writing the other process's memory (CMA), if the kernel
	// allows it. 0: it copies them through shared memory, and under Yama no other rank may reach its own memory.
	ShmCMA bool `env:"GORUN_SHM_CMA" default:"1" of:"shm" like:"btl_sm_single_copy_mechanism, UCX_TLS=^cma"`

	// The addresses of TCP: interfaces (eth0, ib*) and networks (10.1.0.0/16, fd00::/8) separated by commas; !
	// excludes. Not set: all addresses.
	TCPInterfaces string `env:"GORUN_TCP_IF" of:"tcp" like:"btl_tcp_if_include, btl_tcp_if_exclude"`

	// The ports TCP listens on, for example 40000-40999. Not set: any free port.
	TCPPorts string `env:"GORUN_TCP_PORTS" of:"tcp" like:"btl_tcp_port_min_v4, btl_tcp_port_range_v4"`

	// 1: TCP connections are encrypted (TLS 1.3, with keys made for the job). It must be the same for all ranks.
	TCPTLS bool `env:"GORUN_TCP_TLS" default:"0" of:"tcp"`

	// The RDMA devices and ports that ranks may use: names such as mlx5_0:1,mlx5_1 separated by commas; ! excludes. It
	// is an error if one that is named does not work. Of several a rank uses the one nearest to its CPUs, and ranks that
	// are equally near take turns. Not set: the fastest that are active.
	VerbsDevices string `env:"GORUN_VERBS_DEV" of:"verbs" like:"btl_openib_if_include, UCX_NET_DEVICES"`

	// The InfiniBand partition: a P_Key such as 8001 that gorun info shows for the port. Not set: the first partition
	// with full membership.
	VerbsPartition string `env:"GORUN_VERBS_PKEY" of:"verbs" like:"btl_openib_pkey, UCX_IB_PKEY"`

	// The path of the libibverbs that is opened, for example of the software HCA. Not set: the system's
	// libibverbs.so.1.
	VerbsLibrary string `env:"GORUN_VERBS_LIB" of:"verbs"`

	// The traffic class of RoCE packets: four times the DSCP, plus 2 where switches mark congestion. 106 is DSCP 26 and
	// ECN, as UCX has it; InfiniBand's class is 0.
	VerbsClass int `env:"GORUN_VERBS_TC" default:"106" max:"255" of:"verbs" like:"UCX_IB_TRAFFIC_CLASS"`

	// The service level of RDMA packets, by which an InfiniBand fabric chooses their virtual lane. Some routings need the
	// level that the subnet manager gives a path.
	VerbsLevel int `env:"GORUN_VERBS_SL" default:"0" max:"15" of:"verbs" like:"btl_openib_ib_service_level, UCX_IB_SL"`

	// From this size on, messages in ordinary memory are registered and read in place. Shorter ones are copied through
	// registered buffers. Auto: measured when the device is opened.
	VerbsRegister int64 `env:"GORUN_VERBS_REG" default:"auto" of:"verbs"`

	// How many registrations of ordinary memory are kept for the next message in the same memory. 0: none, a
	// registration ends with its message.
	VerbsCache int `env:"GORUN_VERBS_CACHE" default:"0" max:"1048576" of:"verbs" like:"mpi_leave_pinned"`

	// The most memory of a rank for the buffers into which messages of all its peers come over RDMA. Their number follows
	// the number of peers, two for each; 1,024, which take 8 MiB, are there in any case.
	VerbsReceive int64 `env:"GORUN_VERBS_RECV_MAX" default:"64MiB" of:"verbs" like:"btl_openib_receive_queues, UCX_RC_RX_QUEUE_LEN"`

	// Whether RDMA devices match tags and run rendezvous by themselves. off: software matches everything; on: devices
	// match where they can, and the log says where one refuses.
	TagMatching string `env:"GORUN_TM" default:"off" oneof:"off,on" of:"verbs" like:"UCX_TM_ENABLE, UCX_RC_MLX5_TM_ENABLE"`

	// Whether RDMA devices read and write GPU memory by themselves (GPUDirect RDMA). auto: where the GPU and the device
	// share a host bridge, or /sys does not say where they are; on: at any distance; off: messages in GPU memory go
	// through pinned memory of the host. GORUN_LOG=info says for each GPU and device which way messages go, and why.
	GPUDirect string `env:"GORUN_GPUDIRECT" default:"auto" oneof:"auto,on,off" of:"verbs" like:"btl_openib_want_cuda_gdr, UCX_IB_GPU_DIRECT_RDMA"`

	// The path of the libucp that is opened. Not set: the system's libucp.so.0.
	UCXLibrary string `env:"GORUN_UCX_LIB" of:"ucx"`

	// The provider of libfabric, such as efa or tcp;ofi_rxm: a gorun built with -tags ofi lists them by gorun info. Quote
	// a name with a semicolon. Not set: the first of a fast fabric; without one ofi does not open. It must be the same
	// for all ranks.
	OFIProvider string `env:"GORUN_OFI_PROVIDER" of:"ofi" like:"mtl_ofi_provider_include, FI_PROVIDER"`

	// The path of the libfabric that is opened, for example of the one below /opt/amazon/efa. Not set: the system's
	// libfabric.so.1.
	OFILibrary string `env:"GORUN_OFI_LIB" of:"ofi"`

	// The path of the libcuda that is opened, for example of the software GPU. Not set: the system's libcuda.so.1.
	CUDALibrary string `env:"GORUN_CUDA_LIB" of:"cuda"`

	// 1: a rank lets the ranks of its host map its device memory, and one copy moves a message from device to device.
	// 0: such a message goes through pinned memory of the host.
	CUDAShare bool `env:"GORUN_CUDA_SHARE" default:"1" of:"cuda" like:"UCX_TLS=^cuda_ipc"`

	// The folder that gets a report of the calls of all ranks, report.html, report.json and trace.json, at the end of the
	// job. Rank 0 writes it, on its host. gorun --report sets it. It must be the same for all ranks.
	Report string `env:"GORUN_REPORT"`

	// The folder that gets a CPU profile of each rank, rank-N.pprof, from Init to Finalize. Each rank writes on its own
	// host. gorun --cpuprofile sets it. RunLocal does not look at it.
	CPUProfile string `env:"GORUN_CPUPROFILE"`

	// 1: calls have labels in CPU profiles, and are regions and tasks of execution traces, which the program makes by
	// itself. GORUN_CPUPROFILE implies it. 0: calls take no time for them.
	Labels bool `env:"GORUN_LABELS" default:"0"`

	// The name of the job. A rank believes it only if the launcher on PMI_FD has the same name.
	Job string `env:"GORUN_JOB" of:"job"`

	// The key by which a rank that dials PMI_PORT and its launcher prove to each other that they belong to the job.
	// Init takes it out of the environment.
	Key struct{} `env:"GORUN_KEY" of:"job"`

	// The host:port of index 0 of an Indexed Job, which serves the others.
	Rank0 struct{} `env:"GORUN_RANK0" of:"job"`

	// How many ranks the Indexed Job has, one in each pod.
	Size struct{} `env:"GORUN_SIZE" of:"job"`

	// The file with the key of an Indexed Job: 32 bytes in base64.
	KeyFile struct{} `env:"GORUN_KEY_FILE" of:"job"`

	// 1: the process belongs to the connection of two agents of a job, and to no rank.
	Edge struct{} `env:"GORUN_EDGE" of:"job"`

	// The number of this rank among those of its host, for programs.
	LocalRank struct{} `env:"GORUN_LOCAL_RANK" of:"job"`

	// How many ranks of the job run on this host. 0: the launcher does not say. A rank believes it of gorun only.
	LocalSize int `env:"GORUN_LOCAL_SIZE" of:"job"`

	// How many CPUs the ranks on this host may use together, by affinity mask and cgroup quota. 0: the launcher does
	// not say. A rank believes it of gorun only.
	CPUs int `env:"GORUN_CPUS" of:"job"`
}
