//go:build unix

package transporttest

import (
	"syscall"
	"time"
)

// cpuTime is what this process has used, in user mode and in the kernel.
func cpuTime() (time.Duration, bool) {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0, false
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()), true
}
