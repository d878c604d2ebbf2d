package netns

import (
	"fmt"
	"os"
	"strconv"
	"time"
)

// insider is the process that a door, an nsenter outside, has started inside of a host: its pid as seen from here. It
// waits until it is there, but not beyond the end of the door.
func insider(door int, ended <-chan struct{}) (int, error) {
	deadline := time.After(patience)
	look := time.NewTicker(2 * time.Millisecond)
	defer look.Stop()
	for {
		if pid := childElsewhere(door); pid != 0 {
			return pid, nil
		}
		select {
		case <-look.C:
		case <-ended:
			return 0, fmt.Errorf("process %d has ended", door)
		case <-deadline:
			return 0, fmt.Errorf("process %d has started nothing within %v", door, patience)
		}
	}
}

// childElsewhere is the child of a process that is in another PID namespace than we are; 0: there is none so far.
func childElsewhere(parent int) int {
	here, err := os.Readlink("/proc/self/ns/pid")
	if err != nil {
		return 0
	}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return 0
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if f := statOf(pid); len(f) < 2 || f[1] != strconv.Itoa(parent) {
			continue
		}
		if ns, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/pid", pid)); err == nil && ns != here {
			return pid
		}
	}
	return 0
}
