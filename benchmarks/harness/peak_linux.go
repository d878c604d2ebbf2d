package harness

import (
	"bytes"
	"os"
	"strconv"
)

// PeakKiB is the greatest resident size that this process has had, 0 when the system does not say. The kernel's
// rusage would also count the launcher's size at the moment of fork; VmHWM begins with the program.
func PeakKiB() int64 {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0
	}
	for line := range bytes.Lines(status) {
		if value, ok := bytes.CutPrefix(line, []byte("VmHWM:")); ok {
			kib, _ := strconv.ParseInt(string(bytes.TrimSpace(bytes.TrimSuffix(bytes.TrimSpace(value), []byte("kB")))), 10, 64)
			return kib
		}
	}
	return 0
}
