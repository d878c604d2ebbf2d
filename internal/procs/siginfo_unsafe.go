//go:build linux

package procs

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// childStatus reads si_status of what waitid delivered, and childPid si_pid, which x/sys leaves unnamed:
//
//	int si_signo, si_errno, si_code; [pad to the word]; int si_pid; uid si_uid; int si_status
func childStatus(info *unix.Siginfo) int { return childField(info, 2) }
func childPid(info *unix.Siginfo) int    { return childField(info, 0) }

func childField(info *unix.Siginfo, i uintptr) int {
	header := (3*unsafe.Sizeof(int32(0)) + unsafe.Sizeof(uintptr(0)) - 1) &^ (unsafe.Sizeof(uintptr(0)) - 1)
	return int(*(*int32)(unsafe.Add(unsafe.Pointer(info), header+i*unsafe.Sizeof(int32(0)))))
}
