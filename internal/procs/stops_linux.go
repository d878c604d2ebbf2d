package procs

import (
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"
)

// WatchStops returns a channel that has an element when children of this process may have stopped. end ends that.
func WatchStops() (stops <-chan os.Signal, end func()) {
	c := make(chan os.Signal, 1)
	signal.Notify(c, syscall.SIGCHLD)
	return c, func() { signal.Stop(c) }
}

// StoppedChildren calls f for each child that has stopped since the last call.
func StoppedChildren(f func(pid int, by syscall.Signal)) {
	for {
		var info unix.Siginfo
		err := unix.Waitid(unix.P_ALL, 0, &info, unix.WSTOPPED|unix.WNOHANG, nil)
		if err == unix.EINTR {
			continue
		}
		if err != nil || info.Signo == 0 {
			return
		}
		f(childPid(&info), syscall.Signal(childStatus(&info)))
	}
}
