//go:build linux

package eventset

import (
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// These calls never block, so the goroutine keeps its processor: giving it up and queueing for it again costs more than
// the call.

// addOne adds one to an eventfd.
func addOne(fd int) {
	one := uint64(1)
	unix.RawSyscall(unix.SYS_WRITE, uintptr(fd), uintptr(unsafe.Pointer(&one)), 8)
}

// empty sets an eventfd to 0.
func empty(fd int) {
	var n uint64
	unix.RawSyscall(unix.SYS_READ, uintptr(fd), uintptr(unsafe.Pointer(&n)), 8)
}

// readyIn fills events with what is ready in the epoll set now.
func readyIn(set int, events []unix.EpollEvent) int {
	for {
		n, _, errno := unix.RawSyscall6(unix.SYS_EPOLL_PWAIT, uintptr(set), uintptr(unsafe.Pointer(&events[0])),
			uintptr(len(events)), 0, 0, 0)
		if errno != unix.EINTR {
			return max(int(n), 0) // an error is -1
		}
	}
}

// wakeMonitor makes a system call of which Go's runtime knows. Its monitor thread, which takes the processor from a
// goroutine that computes, sleeps for up to a minute once every P is idle. A P that runs again since the poller has
// found a descriptor ready does not wake it, and no RawSyscall does (Go 1.26, findRunnable and sysmon).
func wakeMonitor() { unix.Syscall(unix.SYS_GETPID, 0, 0, 0) }

const (
	futexWait = 0
	futexWake = 1
)

// sleepWhile blocks the calling thread while *w is v, until wakeSleepers is called; it may return early. The word may
// be shared with other processes.
func sleepWhile(w *atomic.Uint32, v uint32) {
	unix.Syscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(w)), futexWait, uintptr(v), 0, 0, 0)
}

func wakeSleepers(w *atomic.Uint32) {
	unix.RawSyscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(w)), futexWake, 1<<30, 0, 0, 0)
}
