package bind

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gorun-mpi/mpi/internal/cpuset"
	"github.com/gorun-mpi/mpi/internal/place"
)

// Mode is what a rank is bound to.
type Mode string

const (
	Auto   Mode = "auto" // an equal share of the cores; nothing when ranks outnumber CPUs
	None   Mode = "none"
	Core   Mode = "core"     // one core, all of its threads
	NUMA   Mode = "numa"     // one NUMA node
	Socket Mode = "socket"   // one socket
	L3     Mode = "l3cache"  // the cores of one third-level cache
	Thread Mode = "hwthread" // one hardware thread
)

// Modes are the values of --bind-to.
var Modes = []Mode{Auto, None, Core, NUMA, Socket, L3, Thread}

// Parse reads a value of --bind-to, in letters of either case.
func Parse(text string) (Mode, error) {
	b := Mode(strings.ToLower(text))
	if b == "package" { // what Open MPI 5 calls a socket
		b = Socket
	}
	if slices.Contains(Modes, b) {
		return b, nil
	}
	return "", fmt.Errorf("--bind-to %s: use auto, none, core, numa, socket, l3cache or hwthread", text)
}

// partOf tells of each CPU to which part of the host it belongs, for what binds to parts of several cores.
var partOf = map[string]func(cpuset.CPU) [3]int{
	"numa":    func(c cpuset.CPU) [3]int { return [3]int{c.Node} },
	"socket":  func(c cpuset.CPU) [3]int { return [3]int{c.Socket} },
	"l3cache": func(c cpuset.CPU) [3]int { return [3]int{c.Socket, c.Node, c.L3} },
}

// Assign returns the CPUs of each of n ranks of a host, never outside the inherited mask; nil: no rank is bound.
func Assign(mode Mode, q place.Request, host cpuset.Host, n int) [][]int {
	auto := mode == Auto || mode == ""
	if mode == None || len(host.CPUs) == 0 || auto && n > host.Usable() {
		return nil
	}
	domains := [][]cpuset.CPU{host.CPUs}
	if part := partOf[string(q.MapBy)]; part != nil {
		domains = groups(host.CPUs, part)
	}
	sets := make([][]int, n)
	for d, cpus := range domains { // rank after rank goes to the next one
		own := (n - d + len(domains) - 1) / len(domains)
		if own <= 0 {
			break
		}
		some := assignIn(mode, q, host, cpus, own)
		if some == nil {
			return nil
		}
		for i, s := range some {
			sets[d+i*len(domains)] = s
		}
	}
	return renumber(sets, q.RankBy, host)
}

// assignIn is Assign for n ranks among these CPUs of the host.
func assignIn(mode Mode, q place.Request, host cpuset.Host, cpus []cpuset.CPU, n int) [][]int {
	cores, threads := numbers(groups(cpus, byCore)), numbers(groups(cpus, byThread))
	switch part := partOf[string(mode)]; {
	case part != nil: // whole ones, also where the ranks were mapped by smaller ones
		outside := func(of []cpuset.CPU) bool {
			return !slices.ContainsFunc(of, func(c cpuset.CPU) bool { return slices.Contains(cpus, c) })
		}
		return spread(numbers(slices.DeleteFunc(groups(host.CPUs, part), outside)), n)
	case q.PE > 0:
		return packed(cores, n, q.PE, mode != Auto && mode != "")
	case mode == Core:
		return spread(cores, n)
	case mode == Thread:
		return spread(threads, n)
	case q.MapBy == place.Thread && n <= len(threads):
		return threads[:n]
	case q.MapBy == place.Core && n <= len(cores):
		return cores[:n]
	case n <= len(cores):
		return wholeCores(cores, n)
	case n <= len(cpus):
		return partsOfCores(cores, n)
	}
	return nil
}

// packed gives each rank so many cores, the next ones. Where there are too few the ranks share them, or are not bound.
func packed(cores [][]int, n, each int, share bool) [][]int {
	if n*each > len(cores) && !share {
		return nil
	}
	sets := make([][]int, n)
	for r := range sets {
		for i := range min(each, len(cores)) {
			sets[r] = append(sets[r], cores[(r*each+i)%len(cores)]...)
		}
		slices.Sort(sets[r])
	}
	return sets
}

// renumber gives the sets to the ranks in the order that --rank-by asks for.
func renumber(sets [][]int, by place.Unit, host cpuset.Host) [][]int {
	part := partOf[string(by)]
	if part == nil && by != place.Core && by != place.Thread {
		return sets
	}
	position := map[int]int{}
	for i, c := range host.CPUs {
		position[c.ID] = i
	}
	slices.SortStableFunc(sets, func(a, b []int) int { return position[a[0]] - position[b[0]] })
	if part == nil {
		return sets
	}
	turn := map[[3]int]int{} // of each part of the host: how many of its sets there were
	var turns [][][]int
	for _, s := range sets {
		in := part(host.CPUs[position[s[0]]])
		t := turn[in]
		turn[in]++
		if t == len(turns) {
			turns = append(turns, nil)
		}
		turns[t] = append(turns[t], s)
	}
	return slices.Concat(turns...)
}

// wholeCores gives each rank neighbouring cores, whose numbers differ by at most one.
func wholeCores(cores [][]int, n int) [][]int {
	sets := make([][]int, n)
	for r, own := range evenly(cores, n) {
		sets[r] = slices.Concat(own...)
		slices.Sort(sets[r])
	}
	return sets
}

// partsOfCores is for more ranks than cores: each rank has threads of one core. There are n CPUs at least.
func partsOfCores(cores [][]int, n int) (sets [][]int) {
	ranks := make([]int, len(cores)) // of each core, no more than it has threads
	for left := n; left > 0; {
		for c := range cores {
			if left > 0 && ranks[c] < len(cores[c]) {
				ranks[c]++
				left--
			}
		}
	}
	for c, threads := range cores {
		sets = append(sets, evenly(threads, ranks[c])...)
	}
	return sets
}

// evenly cuts a list into n neighbouring parts whose lengths differ by at most one.
func evenly[T any](all []T, n int) [][]T {
	parts := make([][]T, n)
	for i := range parts {
		parts[i] = all[i*len(all)/n : (i+1)*len(all)/n]
	}
	return parts
}

func byCore(c cpuset.CPU) [3]int { return [3]int{c.Node, c.Socket, c.Core} }

func byThread(c cpuset.CPU) [3]int { return [3]int{c.ID} }

// groups collects CPUs with equal keys, in order of the first of each.
func groups(all []cpuset.CPU, key func(cpuset.CPU) [3]int) [][]cpuset.CPU {
	var sets [][]cpuset.CPU
	at := map[[3]int]int{}
	for _, c := range all {
		i, ok := at[key(c)]
		if !ok {
			i = len(sets)
			at[key(c)], sets = i, append(sets, nil)
		}
		sets[i] = append(sets[i], c)
	}
	return sets
}

func numbers(groups [][]cpuset.CPU) [][]int {
	sets := make([][]int, len(groups))
	for i, g := range groups {
		for _, c := range g {
			sets[i] = append(sets[i], c.ID)
		}
	}
	return sets
}

// spread gives each rank one group: neighbours get neighbouring groups; when ranks outnumber groups, several
// ranks share one, as evenly as can be.
func spread(groups [][]int, n int) [][]int {
	sets := make([][]int, n)
	for r := range sets {
		g := r
		if n > len(groups) {
			g = r * len(groups) / n
		}
		sets[r] = groups[g]
	}
	return sets
}

// Share returns the GOMAXPROCS that a rank with own CPUs needs, or 0 if the Go runtime finds the right number itself.
// The runtime knows the mask of the rank, but only the quota of the whole job, so the rank's part of the quota counts
// where it is smaller.
func Share(host cpuset.Host, n, own int) int {
	if host.Quota == 0 {
		return 0
	}
	if share := max(1, host.Usable()/n); share < own {
		return share
	}
	return 0
}
