package mpi

import (
	"os"
	"runtime"
	"strconv"
	"strings"
)

// hostCPUs is how many CPUs this host has. Not the affinity mask of this rank: a launcher may have bound it to its
// share.
func hostCPUs() int {
	b, err := os.ReadFile("/sys/devices/system/cpu/online")
	if err != nil {
		return runtime.NumCPU()
	}
	n := 0
	for _, part := range strings.Split(strings.TrimSpace(string(b)), ",") {
		lo, hi, ranged := strings.Cut(part, "-")
		a, err1 := strconv.Atoi(lo)
		z := a
		if ranged {
			z, _ = strconv.Atoi(hi)
		}
		if err1 != nil || z < a {
			return runtime.NumCPU()
		}
		n += z - a + 1
	}
	return n
}
