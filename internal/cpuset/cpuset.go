package cpuset

import (
	"fmt"
	"io/fs"
	"math"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
)

// CPU is one hardware thread and its place. A place that the kernel does not tell is 0.
type CPU struct {
	ID     int
	Core   int // within the package
	Socket int
	Node   int // NUMA node
	L3     int // the first CPU that shares the third-level cache
}

// Host is what this process may use.
type Host struct {
	CPUs []CPU // in the affinity mask, ordered so that neighbours share the most
	// Quota is how many CPUs' worth of time the cgroups allow; 0 if they set no limit.
	Quota float64
}

// Usable is the number of threads that can really run at once: at least 1. Part of a CPU is not counted,
// because a thread that polls on it takes the time of another.
func (h Host) Usable() int {
	n := len(h.CPUs)
	if h.Quota > 0 {
		n = min(n, int(math.Floor(h.Quota+1e-6)))
	}
	return max(n, 1)
}

// Read asks the kernel.
func Read() Host {
	root := os.DirFS("/")
	return Host{CPUs: topology(root, affinity()), Quota: quota(root)}
}

// Machine is what tells one kind of machine from another, whatever part of it this process may use.
type Machine struct {
	Model string // of its CPUs; "": the kernel does not say
	CPUs  int    // online; 0: the kernel does not say
}

// ReadMachine asks the kernel.
func ReadMachine() Machine { return machine(os.DirFS("/")) }

func machine(root fs.FS) (m Machine) {
	text, _ := fs.ReadFile(root, "sys/devices/system/cpu/online")
	if ids, err := ParseList(strings.TrimSpace(string(text))); err == nil {
		m.CPUs = len(ids)
	}
	text, _ = fs.ReadFile(root, "proc/cpuinfo")
	first, _, _ := strings.Cut(string(text), "\n\n") // all CPUs of most machines are alike
	for line := range strings.Lines(first) {
		key, value, _ := strings.Cut(line, ":")
		switch value = strings.TrimSpace(value); strings.TrimSpace(key) {
		case "model name":
			m.Model = value
			return m
		case "CPU implementer", "CPU part": // arm64 has numbers in place of a name
			m.Model = strings.TrimSpace(m.Model + " " + value)
		}
	}
	return m
}

// topology puts the CPUs of the mask in order.
func topology(root fs.FS, mask []int) []CPU {
	nodes := nodesOf(root)
	all := make([]CPU, 0, len(mask))
	for _, id := range mask {
		dir := fmt.Sprintf("sys/devices/system/cpu/cpu%d/topology/", id)
		all = append(all, CPU{
			ID:     id,
			Core:   readInt(root, dir+"core_id"),
			Socket: readInt(root, dir+"physical_package_id"),
			Node:   nodes[id],
			L3:     sharesL3(root, id),
		})
	}
	slices.SortFunc(all, func(a, b CPU) int {
		for _, d := range []int{a.Node - b.Node, a.Socket - b.Socket, a.L3 - b.L3, a.Core - b.Core, a.ID - b.ID} {
			if d != 0 {
				return d
			}
		}
		return 0
	})
	return all
}

// sharesL3 is the first CPU that shares the third-level cache of a CPU.
func sharesL3(root fs.FS, id int) int {
	text, _ := fs.ReadFile(root, fmt.Sprintf("sys/devices/system/cpu/cpu%d/cache/index3/shared_cpu_list", id))
	if all, err := ParseList(strings.TrimSpace(string(text))); err == nil && len(all) > 0 {
		return slices.Min(all)
	}
	return 0
}

func nodesOf(root fs.FS) map[int]int {
	nodes := map[int]int{}
	const dir = "sys/devices/system/node"
	entries, _ := fs.ReadDir(root, dir)
	for _, e := range entries {
		digits, ok := strings.CutPrefix(e.Name(), "node")
		node, err := strconv.Atoi(digits)
		if !ok || err != nil {
			continue
		}
		text, _ := fs.ReadFile(root, path.Join(dir, e.Name(), "cpulist"))
		ids, _ := ParseList(strings.TrimSpace(string(text)))
		for _, id := range ids {
			nodes[id] = node
		}
	}
	return nodes
}

func readInt(root fs.FS, name string) int {
	text, err := fs.ReadFile(root, name)
	if err != nil {
		return 0
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil || n < 0 {
		return 0
	}
	return n
}

// ParseList reads the kernel's notation: 0-3,8.
func ParseList(text string) ([]int, error) {
	var ids []int
	if text == "" {
		return nil, nil
	}
	for _, part := range strings.Split(text, ",") {
		a, b, isRange := strings.Cut(part, "-")
		lo, err := strconv.Atoi(a)
		hi := lo
		if err == nil && isRange {
			hi, err = strconv.Atoi(b)
		}
		if err != nil || lo < 0 || hi < lo || hi > 1<<16 {
			return nil, fmt.Errorf("%q is no list of CPUs such as 0-3,8", text)
		}
		for id := lo; id <= hi; id++ {
			ids = append(ids, id)
		}
	}
	return ids, nil
}

// FormatList is the inverse of ParseList, for any order.
func FormatList(ids []int) string {
	ids = slices.Clone(ids)
	slices.Sort(ids)
	var b strings.Builder
	for i := 0; i < len(ids); {
		j := i
		for j+1 < len(ids) && ids[j+1] == ids[j]+1 {
			j++
		}
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(strconv.Itoa(ids[i]))
		if j > i {
			fmt.Fprintf(&b, "-%d", ids[j])
		}
		i = j + 1
	}
	return b.String()
}
