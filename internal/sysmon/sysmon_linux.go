package sysmon

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// ErrUnknown means that no thread could be told to be the monitor.
var ErrUnknown = errors.New("sysmon: Go's monitor thread is not to be told from the others")

// looks is how often a thread is looked at that may be the monitor and does not sleep; pause is between two looks.
const (
	looks = 20
	pause = 20_000 // ns
)

// Batch gives the monitor thread the policy SCHED_BATCH: its wake-ups do not preempt another thread of its CPU, and it
// runs at the next tick at the latest, or at once where the CPU has nothing else to do. A process that was started with
// another policy than the usual one keeps that.
//
// The monitor sleeps for 20 µs at a time when a program starts and after each idleness, and for up to 10 ms later.
// On a CPU where another thread spins each of its wake-ups is two context switches.
func Batch() error {
	tid, err := firstMade()
	if err != nil {
		return err
	}
	attr, err := unix.SchedGetAttr(tid, 0)
	switch {
	case err != nil:
		return fmt.Errorf("sysmon: sched_getattr of thread %d: %w", tid, err)
	case attr.Policy != unix.SCHED_NORMAL:
		return nil
	}
	if err := sleeps(tid); err != nil {
		return err
	}
	attr.Policy = unix.SCHED_BATCH
	if err := unix.SchedSetAttr(tid, attr, 0); err != nil {
		return fmt.Errorf("sysmon: sched_setattr of thread %d: %w", tid, err)
	}
	return nil
}

// firstMade is the first thread that this process has made: Go's runtime makes the monitor before any other.
func firstMade() (tid int, err error) {
	dir, err := os.Open("/proc/self/task")
	if err != nil {
		return 0, err
	}
	defer dir.Close()
	names, err := dir.Readdirnames(2) // in the order in which they were made
	if err != nil || len(names) < 2 {
		return 0, errors.Join(ErrUnknown, err)
	}
	return strconv.Atoi(names[1])
}

// sleeps returns when that thread is in nanosleep, where no other thread of Go is for longer than some microseconds. A
// library in C may have made threads before Go's runtime did.
func sleeps(tid int) error {
	for range looks {
		b, err := os.ReadFile("/proc/self/task/" + strconv.Itoa(tid) + "/syscall")
		if err != nil {
			return err
		}
		if call, _, _ := strings.Cut(string(b), " "); call == nanosleep {
			return nil
		}
		// These calls have woken it: it needs the CPU before it sleeps again.
		unix.Nanosleep(&unix.Timespec{Nsec: pause}, nil)
	}
	return ErrUnknown
}

var nanosleep = strconv.Itoa(unix.SYS_NANOSLEEP)
