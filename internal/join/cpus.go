package join

import (
	"os"
	"runtime"
	"slices"
	"strings"

	"github.com/gorun-mpi/mpi/internal/cpuset"
)

// nodesOfCPUs are the NUMA nodes of the CPUs that this rank may use.
func nodesOfCPUs() (nodes []int) {
	for _, c := range cpuset.Read().CPUs {
		if !slices.Contains(nodes, c.Node) {
			nodes = append(nodes, c.Node)
		}
	}
	return nodes
}

// usableCPUs is how many CPUs the ranks of this host may use together: what the launcher says, or else all that are
// online, less what a cgroup's quota withholds. The affinity mask of this rank does not count: a launcher may have
// bound it to its share.
func usableCPUs(launcherSays int) int {
	if launcherSays > 0 {
		return launcherSays
	}
	n := runtime.NumCPU()
	if b, err := os.ReadFile("/sys/devices/system/cpu/online"); err == nil {
		if ids, err := cpuset.ParseList(strings.TrimSpace(string(b))); err == nil && len(ids) > 0 {
			n = len(ids)
		}
	}
	if q := cpuset.Read().Quota; q > 0 {
		n = min(n, max(int(q), 1))
	}
	return n
}
