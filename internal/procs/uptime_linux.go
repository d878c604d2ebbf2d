package procs

import (
	"time"

	"golang.org/x/sys/unix"
)

// uptime is the time since some moment, with the time in which the machine slept.
func uptime() time.Duration {
	var t unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &t) != nil {
		return 0
	}
	return time.Duration(t.Nano())
}
