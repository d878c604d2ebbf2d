package settings

// Kind is the syntax of a variable's value.
type Kind string

const (
	Bytes    Kind = "bytes"    // 4096, 64KiB, 1M; "auto" where the default is auto
	List     Kind = "list"     // names separated by commas
	Duration Kind = "duration" // 250ms, 60s; "auto" where the default is auto
	Level    Kind = "level"    // one of the log levels
	Number   Kind = "number"   // a decimal number
	String   Kind = "string"   // any text
	Switch   Kind = "switch"   // 0 or 1
	Tristate Kind = "tristate" // auto, on or off
)

// Setting is one row of the table.
type Setting struct {
	Name    string
	Default string
	Kind    Kind
	Meaning string
	// Internal: gorun sets it for its ranks; a user need not and should not.
	Internal bool
}

// Table is every GORUN_* variable there is. `gorun info` prints it; README and man page are made from it.
var Table = []Setting{
	{"GORUN_TRANSPORTS", defaultTransports, List, "how ranks may reach each other, in order of preference; the first that works for a pair is used (known: shm, tcp, and verbs where it was built in)", false},
	{"GORUN_EAGER_MAX", "auto", Bytes, "messages up to this size are sent at once; longer ones ask first (auto: what measured best for the transport; shm 8KiB where the caller waits, else 32KiB; tcp 64KiB)", false},
	{"GORUN_UNEXPECTED_MAX", "64MiB", Bytes, "most memory a rank spends on messages that came before their receive was posted; senders then wait", false},
	{"GORUN_SPIN", "auto", Duration, "how long a waiting rank polls before it sleeps in the kernel (auto: adaptive, and 0 when ranks outnumber CPUs; 0: never polls)", false},
	{"GORUN_SHM_RING", "auto", Bytes, "data area of one shared-memory ring, that is of one direction between two ranks (auto: chosen by the number of ranks)", false},
	{"GORUN_TCP_IF", "", String, "which addresses TCP uses: names of interfaces (eth0, ib*) and networks (10.1.0.0/16, fd00::/8) separated by commas; ! before one excludes it (default: all)", false},
	{"GORUN_TCP_PORTS", "", String, "where TCP listens, for example 40000-40999 (default: any free port)", false},
	{"GORUN_TCP_TLS", "0", Switch, "1: TCP connections are encrypted (TLS 1.3, with keys made for the job); the same for all ranks", false},
	{"GORUN_VERBS_DEV", "", String, "which RDMA devices and ports verbs uses: names such as mlx5_0:1,mlx5_1 separated by commas; ! before one excludes it (default: the first active port)", false},
	{"GORUN_VERBS_PKEY", "", String, "InfiniBand partition of verbs: a P_Key such as 8001 of the port's table, which gorun info shows (default: the first with full membership)", false},
	{"GORUN_VERBS_LIB", "", String, "path of the libibverbs that is opened, for example of the software HCA (default: the system's libibverbs.so.1)", false},
	{"GORUN_VERBS_TC", "106", Number, "traffic class of RoCE packets: four times the DSCP, plus 2 where switches mark congestion (106: DSCP 26 and ECN, as UCX); InfiniBand's is 0", false},
	{"GORUN_VERBS_REG", "auto", Bytes, "verbs: from this size on, messages in ordinary memory are registered and read in place; shorter ones are copied through registered buffers (auto: measured when the device is opened)", false},
	{"GORUN_VERBS_CACHE", "0", Number, "verbs: how many registrations of ordinary memory are kept for the next message in the same memory (0: none; a registration ends with its message)", false},
	{"GORUN_TM", "auto", Tristate, "whether RDMA devices match tags and run rendezvous by themselves (auto: where a device can; on: an error where none can; off: software matches everything)", false},
	{"GORUN_LOG", "off", Level, "what is logged to standard error: off, error, warn, info, debug or trace; debug says which transport was chosen for each peer, and why", false},
	{"GORUN_TIMEOUT", "60s", Duration, "how long one step of starting up may take before it is an error", false},
	{"GORUN_PEER_TIMEOUT", "30s", Duration, "how long a connection to another host (a rank's, or the launcher's) may leave unanswered what was sent before that host or the way to it counts as failed; at least 1s", false},

	{"GORUN_JOB", "", String, "name of the job; believed only when the launcher on PMI_FD has the same name", true},
	{"GORUN_KEY", "", String, "key by which a rank that dials PMI_PORT and its launcher prove to each other who they are; Join takes it out of the environment", true},
	{"GORUN_LOCAL_RANK", "", Number, "number of this rank among those of its host", true},
	{"GORUN_LOCAL_SIZE", "", Number, "how many ranks of the job run on this host", true},
	{"GORUN_CPUS", "", Number, "how many CPUs the ranks on this host may use together (affinity mask and cgroup quota)", true},
}

// levels are the values of a Level, from silent to loud.
var levels = []string{"off", "error", "warn", "info", "debug", "trace"}
