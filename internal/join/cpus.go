package join

import (
	"os"
	"runtime"
	"strings"

	"github.com/gorun-mpi/mpi/internal/cpuset"
)

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
