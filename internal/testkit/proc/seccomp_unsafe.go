//go:build linux

package proc

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// ForbidReadv makes process_vm_readv fail with EPERM in every thread of this process, and in its children, for good:
// what the default seccomp profile of a container does.
func ForbidReadv() error { return forbid(unix.SYS_PROCESS_VM_READV) }

// ForbidWritev is ForbidReadv of process_vm_writev alone.
func ForbidWritev() error { return forbid(unix.SYS_PROCESS_VM_WRITEV) }

func forbid(call uint32) error {
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("PR_SET_NO_NEW_PRIVS: %w", err)
	}
	const numberAt = 0 // offset of nr in struct seccomp_data
	filter := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: numberAt},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: call, Jt: 0, Jf: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
	}
	prog := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	// TSYNC: the Go runtime has threads already, and any of them may run the call.
	r, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC,
		uintptr(unsafe.Pointer(&prog)))
	if errno != 0 {
		return fmt.Errorf("seccomp: %w", errno)
	}
	if r != 0 {
		return fmt.Errorf("seccomp: thread %d could not be given the filter", r)
	}
	return nil
}
