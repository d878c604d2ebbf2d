package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/gorun-mpi/mpi/internal/cpuset"
	"github.com/gorun-mpi/mpi/internal/join"
	"github.com/gorun-mpi/mpi/internal/reach"
	"github.com/gorun-mpi/mpi/internal/settings"
	"github.com/gorun-mpi/mpi/internal/topology"
)

// facts is what gorun info --json prints, and gorun doctor asks of each host. Its names stay.
type facts struct {
	Gorun      string     `json:"gorun"` // version
	Build      string     `json:"build"` // by which jobs tell builds apart
	Path       string     `json:"path"`  // of gorun
	System     string     `json:"system"`
	Arch       string     `json:"arch"`
	Host       string     `json:"host"`
	Kernel     string     `json:"kernel"`
	CPUs       cpuFacts   `json:"cpus"`
	Readv      string     `json:"process_vm_readv"` // begins with "yes" where ranks may read each other's memory
	Memlock    int64      `json:"memlock_bytes"`    // the hard limit; -1: none
	Files      int64      `json:"nofile"`           // the hard limit of open files; -1: none
	Processes  int64      `json:"nproc"`            // how many threads there may be; -1: no limit
	Interfaces []netFacts `json:"interfaces"`
	RDMA       rdmaFacts  `json:"rdma"`
	UCX        ucxFacts   `json:"ucx"`
	OFI        ofiFacts   `json:"ofi"`
	// Transports are what the settings name, each with the reason why a rank could not open it; "": it could.
	Transports []transportFacts `json:"transports"`
	Waiting    []string         `json:"waiting_ranks"` // what they do; then what if they outnumber CPUs
	Inside     string           `json:"inside_a_job_of,omitempty"`
	// Tuned is the file of gorun tune that holds for programs without one next to them; nil: none.
	Tuned *tunedFacts `json:"tuned,omitempty"`
	// Settings has the GORUN_ variables that are set, but for secrets.
	Settings map[string]string `json:"settings"`
	Warnings []string          `json:"warnings,omitempty"`
	Error    string            `json:"settings_error,omitempty"`
}

type cpuFacts struct {
	Usable   int     `json:"usable"`
	Affinity string  `json:"affinity"`
	Cores    int     `json:"cores"`
	Nodes    int     `json:"numa_nodes"`
	Quota    float64 `json:"cgroup_quota,omitempty"` // CPUs; 0: none
}

// netFacts is an interface that is up.
type netFacts struct {
	Name      string   `json:"name"`
	MTU       int      `json:"mtu"`
	Loopback  bool     `json:"loopback,omitempty"`
	Carrier   bool     `json:"carrier"`   // a cable is connected
	Addresses []string `json:"addresses"` // with the length of their network
}

type transportFacts struct {
	Name  string `json:"name"`
	Error string `json:"error,omitempty"`
}

// tryTransports opens the transports of the settings here. A driver that hangs must not keep gorun.
func tryTransports(environ []string) (all []transportFacts) {
	tried, ok := within(patience, func() (t []join.Tried) {
		t, _ = join.TryTransports(environ) // wrong settings are reported elsewhere
		return t
	})
	if !ok {
		return []transportFacts{{"all", fmt.Sprintf("not open within %v: does a driver hang? (dmesg)", patience)}}
	}
	for _, t := range tried {
		f := transportFacts{Name: t.Name}
		if t.Err != nil {
			f.Error = t.Err.Error()
		}
		all = append(all, f)
	}
	return all
}

type rdmaFacts struct {
	Devices []topology.Device `json:"devices"`
	GPUs    []topology.GPU    `json:"gpus"`
	// Near has the distance of each GPU, by PCI address, and RDMA device.
	Near      map[string]map[string]topology.Near `json:"near,omitempty"`
	Support   *topology.Support                   `json:"gpudirect_support,omitempty"` // nil: no GPU has NVIDIA's driver
	Direct    []topology.Pairs                    `json:"gpudirect,omitempty"`
	Verbs     bool                                `json:"built_with_verbs"`
	CUDA      bool                                `json:"built_with_cuda"`
	Error     string                              `json:"error,omitempty"`
	CUDAError string                              `json:"cuda_error,omitempty"`
}

// factsOfDevices copies what is known of this host's devices.
func factsOfDevices(m machine) rdmaFacts {
	f := rdmaFacts{Devices: m.Devices, GPUs: m.GPUs, Near: map[string]map[string]topology.Near{},
		Direct: m.Pairs(), Verbs: askVerbs != nil, CUDA: m.cudaAsked}
	if slices.ContainsFunc(m.GPUs, usable) {
		f.Support = &m.Support
	}
	for _, g := range m.GPUs {
		row := map[string]topology.Near{}
		for _, d := range m.Devices {
			row[d.Name], _ = m.Distance(g, d)
		}
		f.Near[g.Slot.Address()] = row
	}
	if m.err != nil {
		f.Error = m.err.Error()
	}
	if m.cudaErr != nil {
		f.CUDAError = m.cudaErr.Error()
	}
	return f
}

// readFacts looks at this host. m is what is known of its devices.
func readFacts(environ []string, m machine) facts {
	host := cpuset.Read()
	ids := make([]int, len(host.CPUs))
	for i, c := range host.CPUs {
		ids[i] = c.ID
	}
	name, _ := os.Hostname()
	cores, nodes := coresAndNodes(host.CPUs)
	f := facts{Gorun: version(), Build: buildID(), Path: ownPath(), System: runtime.GOOS, Arch: runtime.GOARCH,
		Host: name, Kernel: kernel(),
		CPUs:  cpuFacts{host.Usable(), cpuset.FormatList(ids), cores, nodes, host.Quota},
		Readv: probeReadv(), Memlock: hardLimit(unix.RLIMIT_MEMLOCK), Files: hardLimit(unix.RLIMIT_NOFILE),
		Processes:  processes(),
		Interfaces: interfaces(),
		RDMA:       factsOfDevices(m),
		UCX:        askUCX(),
		OFI:        askOFI(),
		Transports: tryTransports(environ),
		Waiting:    waiting(environ, host.Usable()), Inside: outerLauncher(), Settings: map[string]string{}}
	for _, kv := range environ {
		name, value, _ := strings.Cut(kv, "=")
		if s, known := settings.Find(name); known && !s.Secret() {
			f.Settings[name] = value
		}
	}
	tuned, tunedErr := factsOfTuned(environ)
	f.Tuned = tuned
	_, warnings, err := join.Settings(environ)
	if err == nil {
		err = tunedErr
	}
	for _, w := range warnings {
		f.Warnings = append(f.Warnings, w.String())
	}
	if err != nil {
		f.Error = err.Error()
	}
	return f
}

// hardLimit is what a process may raise a limit to; -1: there is none.
func hardLimit(resource int) int64 {
	var l unix.Rlimit
	if err := unix.Getrlimit(resource, &l); err != nil || l.Max > 1<<62 {
		return -1
	}
	return int64(l.Max)
}

// processes is how many threads there may be; -1: there is no limit. That of the user does not hold for root.
func processes() int64 {
	n := int64(-1)
	if os.Geteuid() != 0 {
		n = hardLimit(unix.RLIMIT_NPROC)
	}
	for _, file := range []string{"/sys/fs/cgroup/pids.max", "/sys/fs/cgroup/pids/pids.max"} {
		text, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		if most, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64); err == nil && (n < 0 || most < n) {
			n = most
		}
	}
	return n
}

func ownPath() string {
	path, _ := os.Executable()
	return path
}

// buildID is what tells this gorun from other builds.
func buildID() string {
	me, err := reach.Me()
	if err != nil {
		return ""
	}
	return me.Build
}

func interfaces() (all []netFacts) {
	list, _ := net.Interfaces()
	for _, i := range list {
		if i.Flags&net.FlagUp == 0 {
			continue
		}
		n := netFacts{Name: i.Name, MTU: i.MTU, Loopback: i.Flags&net.FlagLoopback != 0,
			Carrier: i.Flags&net.FlagRunning != 0, Addresses: []string{}}
		addrs, _ := i.Addrs()
		for _, a := range addrs {
			n.Addresses = append(n.Addresses, a.String())
		}
		all = append(all, n)
	}
	return all
}

// print prints what decides how a job runs here.
func (f facts) print(w io.Writer) {
	quota := "none"
	if f.CPUs.Quota > 0 {
		quota = fmt.Sprintf("%.4g CPUs", f.CPUs.Quota)
	}
	rows := [][]string{
		{"gorun", f.Gorun},
		{"build", f.Build},
		{"host", f.Host},
		{"kernel", f.Kernel},
		{"CPUs usable", fmt.Sprintf("%d (affinity %s; cores: %d, NUMA nodes: %d; cgroup quota: %s)",
			f.CPUs.Usable, f.CPUs.Affinity, f.CPUs.Cores, f.CPUs.Nodes, quota)},
		{"process_vm_readv", f.Readv},
	}
	for i, text := range f.Waiting {
		rows = append(rows, []string{[]string{"waiting ranks", ""}[min(i, 1)], text})
	}
	for i, t := range f.Transports {
		works := "works here"
		if t.Error != "" {
			works = "does not open: " + t.Error
		}
		rows = append(rows, []string{[]string{"transports", ""}[min(i, 1)], t.Name + ": " + works})
	}
	if f.Tuned != nil {
		rows = append(rows, []string{"tuned file", f.Tuned.String()})
	}
	if f.Inside != "" {
		rows = append(rows, []string{"inside a job of", f.Inside})
	}
	for _, row := range rows {
		fmt.Fprintf(w, "%-18s%s\n", row[0], row[1])
	}
	fmt.Fprintln(w)
}

func (f facts) printJSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(f)
}
