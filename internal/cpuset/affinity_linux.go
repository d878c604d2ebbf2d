package cpuset

import (
	"runtime"

	"golang.org/x/sys/unix"
)

// affinity returns the CPUs that the calling thread may run on.
func affinity() []int {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		return first(runtime.NumCPU()) // more CPUs than the set can name
	}
	var ids []int
	for id := 0; len(ids) < set.Count(); id++ {
		if set.IsSet(id) {
			ids = append(ids, id)
		}
	}
	return ids
}
