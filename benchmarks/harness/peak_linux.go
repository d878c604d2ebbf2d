package harness

import (
	"bytes"
	"os"
	"strconv"
)

// PeakKiB is the greatest resident size that this process has had, 0 where it is not known. The kernel's
// rusage would also count the launcher's size at the moment of fork; VmHWM begins with the program.
func PeakKiB() int64 {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0
	}
	for line := range bytes.Lines(status) {
		if fields := bytes.Fields(line); len(fields) == 3 && string(fields[0]) == "VmHWM:" { // VmHWM: 8036 kB
			kib, _ := strconv.ParseInt(string(fields[1]), 10, 64)
			return kib
		}
	}
	return 0
}
