package report

import (
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// hostClock returns a time that all processes of the host have in common, in nanoseconds. Go's monotonic clock is the
// same clock, and does not say so.
func hostClock() int64 {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &t); err != nil {
		return time.Now().UnixNano()
	}
	return t.Nano()
}

// usage returns the CPU time of this process, in nanoseconds, and the most memory that it has had, in bytes.
func usage() (cpu, memory int64) {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0, 0
	}
	return u.Utime.Nano() + u.Stime.Nano(), u.Maxrss << 10
}
