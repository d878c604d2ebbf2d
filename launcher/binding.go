package launcher

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gorun-mpi/mpi/internal/cpuset"
)

// Bind is what a rank is bound to.
type Bind string

const (
	BindAuto Bind = "auto" // an equal share of the cores; nothing when ranks outnumber CPUs
	BindNone Bind = "none"
	BindCore Bind = "core" // one core, all of its threads
	BindNUMA Bind = "numa" // one NUMA node
)

// Binds are the values of --bind-to.
var Binds = []Bind{BindAuto, BindNone, BindCore, BindNUMA}

// ParseBind reads a value of --bind-to.
func ParseBind(text string) (Bind, error) {
	if b := Bind(text); slices.Contains(Binds, b) {
		return b, nil
	}
	return "", fmt.Errorf("--bind-to %s: use auto, none, core or numa", text)
}

// assign returns the CPUs of each rank, never outside the inherited mask; nil: no rank is bound.
func assign(mode Bind, host cpuset.Host, n int) [][]int {
	cores := groups(host.CPUs, func(c cpuset.CPU) [3]int { return [3]int{c.Node, c.Socket, c.Core} })
	switch mode {
	case BindCore:
		return spread(cores, n)
	case BindNUMA:
		return spread(groups(host.CPUs, func(c cpuset.CPU) [3]int { return [3]int{c.Node} }), n)
	case BindNone:
		return nil
	}
	if n > host.Usable() || !canBind {
		return nil
	}
	if n <= len(cores) {
		return wholeCores(cores, n)
	}
	return partsOfCores(cores, n)
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

// groups collects CPUs with equal keys, in order of the CPUs.
func groups(all []cpuset.CPU, key func(cpuset.CPU) [3]int) [][]int {
	var sets [][]int
	for i, c := range all {
		if i == 0 || key(c) != key(all[i-1]) {
			sets = append(sets, nil)
		}
		sets[len(sets)-1] = append(sets[len(sets)-1], c.ID)
	}
	return sets
}

// spread gives each rank one group: neighbours get neighbouring groups; when ranks outnumber groups, several
// ranks share one, as evenly as can be.
func spread(groups [][]int, n int) [][]int {
	if len(groups) == 0 || !canBind {
		return nil
	}
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

// shareOf is the GOMAXPROCS that a rank needs, or 0 if the Go runtime finds the right number itself. The runtime knows
// the mask of the rank, but only the quota of the whole job, so the rank's part of the quota counts where it is
// smaller.
func shareOf(host cpuset.Host, n, own int) int {
	if host.Quota == 0 {
		return 0
	}
	if share := max(1, host.Usable()/n); share < own {
		return share
	}
	return 0
}

// describe says in words where a rank is bound.
func (p *Plan) describe(s *Spec) string {
	rank := fmt.Sprintf("rank %d on host %s", s.Rank, p.Host)
	if s.CPUs == nil {
		ids := make([]int, len(p.CPUs.CPUs))
		for i, c := range p.CPUs.CPUs {
			ids[i] = c.ID
		}
		return fmt.Sprintf("%s is not bound: it may use CPUs %s", rank, cpuset.FormatList(ids))
	}
	var cores, nodes []string
	for _, c := range p.CPUs.CPUs {
		if !slices.Contains(s.CPUs, c.ID) {
			continue
		}
		core, node := fmt.Sprintf("%d.%d", c.Socket, c.Core), fmt.Sprint(c.Node)
		if !slices.Contains(cores, core) {
			cores = append(cores, core)
		}
		if !slices.Contains(nodes, node) {
			nodes = append(nodes, node)
		}
	}
	return fmt.Sprintf("%s is bound to %s %s (%s %s, NUMA %s %s)", rank,
		plural(len(s.CPUs), "CPU"), cpuset.FormatList(s.CPUs), plural(len(cores), "core"), strings.Join(cores, ","),
		plural(len(nodes), "node"), strings.Join(nodes, ","))
}

func plural(n int, word string) string {
	if n == 1 {
		return word
	}
	return word + "s"
}
