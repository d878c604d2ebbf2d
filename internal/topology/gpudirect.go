package topology

import (
	"bufio"
	"compress/gzip"
	"fmt"
	"io"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Answer is what a machine's files say to a question; Unsaid: they do not say.
type Answer string

const (
	Unsaid Answer = ""
	Yes    Answer = "yes"
	No     Answer = "no"
)

// Support is what a machine has for GPUDirect, apart from its devices.
type Support struct {
	Version string   // of NVIDIA's driver: 580.159.04
	Open    Answer   // the driver is NVIDIA's open kernel modules
	Kernel  string   // 6.8.0-45-generic
	DMABuf  Answer   // the kernel is built with dma-buf
	Modules []string // the peer memory modules that are loaded
}

// Direct says whether GPUDirect can work between a GPU and an RDMA device: the device then reads and writes the GPU's
// memory. The distance between the two makes it slow, and never impossible: see Near.Far.
type Direct struct {
	Can  Answer
	By   string // dma-buf, or the peer memory module, if Can is yes
	Why  string // why Can is no, or what is unknown
	Mend string // what makes it yes; empty: nothing does
}

// Pairs are GPUs and RDMA devices for each pair of which Direct is the same.
type Pairs struct {
	GPUs    []string // PCI addresses
	Devices []string
	Direct
}

const (
	peermem    = "nvidia_peermem"
	peermemEFA = "efa_nv_peermem"
)

// peerModules let an adapter register a GPU's memory as if it were the host's. EFA's adapters have one of their own.
var peerModules = []string{peermem, "nv_peer_mem", peermemEFA}

// takers are the RDMA drivers that register dma-buf, each with the drivers of its PCI devices.
var takers = []struct {
	rdma string
	pci  []string
}{
	{"mlx5", []string{"mlx5_core"}},
	{"efa", []string{"efa"}},
	{"bnxt_re", []string{"bnxt_en"}},
	{"irdma", []string{"ice", "i40e", "idpf"}},
}

// The first kernel in which an RDMA driver registers dma-buf.
const firstMajor, firstMinor = 5, 12

// takesDMABuf looks a driver up. A part of a device has its driver's name with a suffix: mlx5_core.sf.
func takesDMABuf(driver string) (rdma string, takes Answer) {
	if driver == "" {
		return "", Unsaid
	}
	name, _, _ := strings.Cut(driver, ".")
	for _, t := range takers {
		if slices.Contains(t.pci, name) {
			return t.rdma, Yes
		}
	}
	return driver, No
}

// peerModule returns the one of the loaded modules by which an RDMA driver registers memory of GPUs by its address. If
// there is none it returns the module that is missing.
func peerModule(rdma string, loaded []string) (name string, ok bool) {
	efa := rdma == "efa"
	for _, m := range loaded {
		if (m == peermemEFA) == efa {
			return m, true
		}
	}
	if efa {
		return peermemEFA, false
	}
	return peermem, false
}

// PeerModule is the answer for an RDMA device of this machine, whose files are below root.
func PeerModule(root, device string) (name string, loaded bool) {
	r := reader{tree: newTree(root)}
	rdma, _ := takesDMABuf(r.link("sys/class/infiniband/" + device + "/device/driver"))
	return peerModule(rdma, r.peerModules())
}

// Direct says whether GPUDirect can work between a GPU and an RDMA device.
func (h *Host) Direct(g GPU, d Device) Direct {
	switch {
	case d.Virtual:
		return Direct{Can: No, Why: "the RDMA device is software"}
	case g.Driver == "amdgpu":
		return Direct{Can: No, Why: "messages use the memory of NVIDIA's GPUs only"}
	case g.Driver == "":
		return Direct{Can: No, Why: "the GPU has no driver", Mend: "install NVIDIA's driver"}
	case g.Driver != driverNVIDIA:
		return Direct{Can: No, Why: "the GPU's driver is " + g.Driver + ", and nvidia is needed",
			Mend: "install NVIDIA's driver"}
	}
	rdma, _ := takesDMABuf(d.Driver)
	can, needs, mends := h.needs(g, d)
	if can == Yes {
		return Direct{Can: Yes, By: "dma-buf"}
	}
	module, loaded := peerModule(rdma, h.Support.Modules)
	if loaded {
		return Direct{Can: Yes, By: module}
	}
	mend := "modprobe " + module
	if len(mends) == len(needs) {
		mend = "install " + strings.Join(mends, " and ") + ", or " + mend
	}
	return Direct{Can: can, Mend: mend,
		Why: "dma-buf needs " + strings.Join(needs, " and ") + "; " + module + " is not loaded"}
}

// needs lists what dma-buf lacks between a GPU and an RDMA device, and what to install where that helps.
func (h *Host) needs(g GPU, d Device) (can Answer, needs, mends []string) {
	can = Yes
	add := func(a Answer, need, mend string) {
		if can != No {
			can = a
		}
		if needs = append(needs, need); mend != "" {
			mends = append(mends, mend)
		}
	}
	const modules = "NVIDIA's open kernel modules"
	switch s := h.Support; {
	case g.CUDA != nil && !g.CUDA.DMABuf:
		add(No, modules+" (CUDA says that the GPU has no dma-buf)", modules)
	case g.CUDA != nil:
	case s.Open == No:
		add(No, modules, modules)
	case s.Open == Unsaid:
		add(Unsaid, modules+" (/proc/driver/nvidia/version does not say)", modules)
	}
	const least = "Linux 5.12"
	major, minor, ok := parseRelease(h.Support.Kernel)
	switch {
	case !ok:
		add(Unsaid, least+" (/proc/sys/kernel/osrelease does not say)", least)
	case major < firstMajor || major == firstMajor && minor < firstMinor:
		add(No, least, least)
	}
	if h.Support.DMABuf == No {
		add(No, "a kernel with CONFIG_DMA_SHARED_BUFFER", "such a kernel")
	}
	switch name, takes := takesDMABuf(d.Driver); takes {
	case Unsaid:
		add(Unsaid, "an RDMA driver that takes it (/sys does not name this device's)", "")
	case No:
		add(No, "an RDMA driver that takes it: mlx5, efa, bnxt_re or irdma (this device has "+name+")", "")
	}
	return can, needs, mends
}

// Pairs are all pairs of a GPU and an RDMA device.
func (h *Host) Pairs() (all []Pairs) {
	type group struct {
		gpus  []string
		pairs []Pairs
	}
	var groups []*group
	index := map[string]*group{} // of GPUs for which all devices have the same answers
	for _, g := range h.GPUs {
		var pairs []Pairs
		for _, d := range h.Devices {
			direct := h.Direct(g, d)
			i := slices.IndexFunc(pairs, func(p Pairs) bool { return p.Direct == direct })
			if i < 0 {
				i, pairs = len(pairs), append(pairs, Pairs{Direct: direct})
			}
			pairs[i].Devices = append(pairs[i].Devices, d.Name)
		}
		key := fmt.Sprintf("%q", pairs)
		if index[key] == nil {
			index[key] = &group{pairs: pairs}
			groups = append(groups, index[key])
		}
		index[key].gpus = append(index[key].gpus, g.Slot.Address())
	}
	for _, g := range groups {
		for _, p := range g.pairs {
			p.GPUs = g.gpus
			all = append(all, p)
		}
	}
	return all
}

// support reads what there is for memory of NVIDIA's GPUs.
func (r reader) support() (s Support) {
	if text, err := r.read("proc/driver/nvidia/version"); err == nil {
		s.Version, s.Open = parseDriver(text)
	}
	s.Kernel = r.text("proc/sys/kernel/osrelease")
	s.Modules = r.peerModules()
	s.DMABuf = r.config("proc/config.gz", "DMA_SHARED_BUFFER", true)
	if s.DMABuf == Unsaid && isName(s.Kernel) {
		s.DMABuf = r.config(path.Join("boot", "config-"+s.Kernel), "DMA_SHARED_BUFFER", false)
	}
	return s
}

// peerModules are those that are loaded.
func (r reader) peerModules() (loaded []string) {
	for _, name := range peerModules {
		if r.exists("sys/module/" + name) {
			loaded = append(loaded, name)
		}
	}
	return loaded
}

// longestConfig is far more than the configuration of a kernel with all drivers has.
const longestConfig = 4 << 20

// config looks for an option in a file with the configuration of a kernel.
func (r reader) config(name, option string, zipped bool) Answer {
	f, err := r.open(name)
	if err != nil {
		return Unsaid
	}
	defer f.Close()
	in := io.Reader(f)
	if zipped {
		if in, err = gzip.NewReader(f); err != nil {
			return Unsaid
		}
	}
	return parseConfig(io.LimitReader(in, longestConfig), option)
}

// parseConfig looks for an option. One that a configuration does not have is off, if that is one and read to its end.
func parseConfig(in io.Reader, option string) Answer {
	limited, _ := in.(*io.LimitedReader)
	options := false
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		name, value, ok := strings.Cut(lines.Text(), "=")
		name, isOption := strings.CutPrefix(name, "CONFIG_")
		options = options || ok && isOption
		if ok && isOption && name == option && (value == "y" || value == "m") {
			return Yes
		}
	}
	if lines.Err() != nil || !options || limited != nil && limited.N <= 0 {
		return Unsaid
	}
	return No
}

var driverVersion = regexp.MustCompile(`^[0-9]+(\.[0-9]+)+$`)

// parseDriver reads /proc/driver/nvidia/version: "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04
// Release Build", or "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.129.03  Thu Oct 19".
func parseDriver(text string) (version string, open Answer) {
	for line := range strings.Lines(text) {
		value, ok := strings.CutPrefix(line, "NVRM version:")
		if !ok {
			continue
		}
		value = clean(value)
		for word := range strings.FieldsSeq(value) {
			if driverVersion.MatchString(word) {
				version = word
				break
			}
		}
		switch {
		case strings.Contains(value, "Open Kernel Module"):
			open = Yes
		case strings.Contains(value, "Kernel Module"):
			open = No
		}
		return version, open
	}
	return "", Unsaid
}

// parseRelease reads the two numbers that a kernel's release begins with: 6.18.44-fc.
func parseRelease(s string) (major, minor int, ok bool) {
	first, rest, found := strings.Cut(s, ".")
	major, err1 := strconv.Atoi(first)
	minor, err2 := strconv.Atoi(rest[:digits(rest)])
	return major, minor, found && err1 == nil && err2 == nil && major >= 0
}
