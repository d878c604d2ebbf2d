//go:build linux

package shm

import (
	"fmt"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	futexWait = 0
	futexWake = 1
)

// sleepWhile blocks the calling thread until *w is no longer v and somebody has called wakeSleepers, or for no reason.
func sleepWhile(w *atomic.Uint32, v uint32) {
	unix.Syscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(w)), futexWait, uintptr(v), 0, 0, 0)
}

func wakeSleepers(w *atomic.Uint32) {
	unix.RawSyscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(w)), futexWake, 1<<30, 0, 0, 0)
}

// ringBell adds one to an eventfd.
func ringBell(fd int) {
	one := uint64(1)
	unix.RawSyscall(unix.SYS_WRITE, uintptr(fd), uintptr(unsafe.Pointer(&one)), 8)
}

// getPiece bounds one process_vm_readv. The call does not give up the goroutine's P (handing it over and queueing
// for it again would cost milliseconds on a busy rank), so a garbage collection may have to wait for one piece.
const getPiece = 1 << 20

// readPeer fills dst from addr in the address space of pid.
func readPeer(pid int, dst []byte, addr uint64) error {
	for len(dst) > 0 {
		n := min(len(dst), getPiece)
		local := unix.Iovec{Base: &dst[0]}
		local.SetLen(n)
		remote := unix.RemoteIovec{Base: uintptr(addr), Len: n}
		got, _, errno := unix.RawSyscall6(unix.SYS_PROCESS_VM_READV, uintptr(pid),
			uintptr(unsafe.Pointer(&local)), 1, uintptr(unsafe.Pointer(&remote)), 1, 0)
		if errno != 0 {
			return fmt.Errorf("process_vm_readv of %d bytes from process %d: %w", n, pid, errno)
		}
		if got == 0 {
			return fmt.Errorf("process_vm_readv of %d bytes from process %d: nothing there", n, pid)
		}
		dst, addr = dst[got:], addr+uint64(got)
	}
	return nil
}
