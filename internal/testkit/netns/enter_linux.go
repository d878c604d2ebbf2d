package netns

import (
	"fmt"
	"runtime"

	"golang.org/x/sys/unix"
)

// Do calls f in the network of a host or of the switch: sockets that f makes itself belong there for good. Sockets of
// goroutines that f starts do not. f sees nothing else of the host.
func (h *Hosts) Do(host int, f func() error) error {
	if !h.procs[host].Alive() {
		return fmt.Errorf("host h%d has crashed or is switched off", host)
	}
	done := make(chan error, 1)
	go func() {
		// Never unlocked: the thread ends with this goroutine, and no other goroutine gets one that is in another network.
		runtime.LockOSThread()
		done <- inNetwork(h.procs[host].PID, f)
	}()
	return <-done
}

func inNetwork(pid int, f func() error) error {
	fd, err := unix.Open(fmt.Sprintf("/proc/%d/ns/net", pid), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if err := unix.Setns(fd, unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("entering the network of process %d: %w", pid, err)
	}
	return f()
}
