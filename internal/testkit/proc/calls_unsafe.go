//go:build linux

package proc

import (
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Call is a system call that a process has begun, and that waits until the watcher of the process lets it go on.
type Call struct {
	Number     int
	Descriptor int // its first argument
	id         uint64
}

// seccompNotice and seccompAnswer are struct seccomp_notif and struct seccomp_notif_resp.
type seccompNotice struct {
	id         uint64
	pid, flags uint32
	number     int32
	arch       uint32
	at         uint64
	args       [6]uint64
}

type seccompAnswer struct {
	id    uint64
	value int64
	errno int32
	flags uint32
}

// ShowCalls has every thread of this process show some system calls, for good. The descriptor that it returns is for
// another process, which lets each of them go on (Next, GoOn). Until then the caller stands, except in calls on the
// descriptor free.
func ShowCalls(calls []uint32, free int) (shown int, err error) {
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return 0, fmt.Errorf("PR_SET_NO_NEW_PRIVS: %w", err)
	}
	const numberAt, argumentAt = 0, 16 // of nr, and of the lower half of args[0], in struct seccomp_data
	filter := []unix.SockFilter{{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: numberAt}}
	for i, call := range calls { // to the load of the argument, behind the other numbers and a return
		filter = append(filter, unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: call,
			Jt: uint8(len(calls) - i)})
	}
	filter = append(filter, unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
		unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: argumentAt},
		unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: uint32(free), Jt: 0, Jf: 1},
		unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
		unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_USER_NOTIF})
	prog := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	// A signal that interrupts a caller, such as Go's for preemption, would have it make the call a second time.
	const flags = unix.SECCOMP_FILTER_FLAG_NEW_LISTENER | unix.SECCOMP_FILTER_FLAG_TSYNC |
		unix.SECCOMP_FILTER_FLAG_TSYNC_ESRCH | unix.SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV
	fd, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, flags, uintptr(unsafe.Pointer(&prog)))
	if errno != 0 {
		return 0, fmt.Errorf("seccomp: %w", errno)
	}
	return int(fd), nil
}

// NextCall waits for a call of a process that shows its calls. It returns false when the process has ended.
func NextCall(shown *os.File) (Call, bool) {
	fd := int(shown.Fd())
	for {
		ready := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		if _, err := unix.Poll(ready, -1); err == unix.EINTR {
			continue
		}
		if ready[0].Revents&unix.POLLIN == 0 {
			return Call{}, false
		}
		var n seccompNotice
		switch _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SECCOMP_IOCTL_NOTIF_RECV,
			uintptr(unsafe.Pointer(&n))); errno {
		case 0:
			return Call{Number: int(n.number), Descriptor: int(int32(n.args[0])), id: n.id}, true
		case unix.EINTR, unix.ENOENT: // that thread has ended
		default:
			return Call{}, false
		}
	}
}

// GoOn lets a call go on. It does nothing if the caller has ended.
func (c Call) GoOn(shown *os.File) {
	a := seccompAnswer{id: c.id, flags: unix.SECCOMP_USER_NOTIF_FLAG_CONTINUE}
	unix.Syscall(unix.SYS_IOCTL, shown.Fd(), unix.SECCOMP_IOCTL_NOTIF_SEND, uintptr(unsafe.Pointer(&a)))
}
