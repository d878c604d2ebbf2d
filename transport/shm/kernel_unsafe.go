//go:build linux

package shm

import (
	"fmt"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/gorun-mpi/mpi/transport"
)

const futexWake = 1

func wakeSleepers(w *atomic.Uint32) {
	unix.RawSyscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(w)), futexWake, 1<<30, 0, 0, 0)
}

// ringDoorbell makes a doorbell readable. It never blocks: without room there is something to read.
func ringDoorbell(fd int) {
	var b [1]byte
	unix.RawSyscall(unix.SYS_WRITE, uintptr(fd), uintptr(unsafe.Pointer(&b)), 1)
}

// clearDoorbell takes what has been rung, as often as the other end's buffer holds.
func clearDoorbell(fd int) {
	var b [1024]byte
	unix.RawSyscall(unix.SYS_READ, uintptr(fd), uintptr(unsafe.Pointer(&b)), uintptr(len(b)))
}

// ended reports whether the process of a pidfd has ended. Its number is not given to another process before.
func ended(pidFD int) bool {
	fds := unix.PollFd{Fd: int32(pidFD), Events: unix.POLLIN}
	var now unix.Timespec
	n, _, _ := unix.RawSyscall6(unix.SYS_PPOLL, uintptr(unsafe.Pointer(&fds)), 1, uintptr(unsafe.Pointer(&now)), 0, 0, 0)
	return int(n) == 1
}

// getPiece bounds one process_vm_readv. The call does not give up the goroutine's P, since handing it over and queueing
// for it again would cost milliseconds on a busy rank. So a garbage collection may have to wait for one piece.
const getPiece = 1 << 20

// readPeer fills dst from addr in the address space of pid.
func readPeer(pid int, dst []byte, addr uint64) error {
	return moveMemory(unix.SYS_PROCESS_VM_READV, "process_vm_readv", pid, dst, addr)
}

// readTwo fills first from at, and then second from the other address, in the address space of pid, in one call. It
// returns how many bytes it has read.
func readTwo(pid int, first []byte, at uint64, second []byte, addr uint64) (n int, err error) {
	local := [2]unix.Iovec{{Base: unsafe.SliceData(first)}, {Base: unsafe.SliceData(second)}}
	remote := [2]unix.RemoteIovec{{Base: uintptr(at), Len: len(first)}, {Base: uintptr(addr), Len: len(second)}}
	local[0].SetLen(len(first))
	local[1].SetLen(len(second))
	if len(first) == 0 {
		return moveVector(unix.SYS_PROCESS_VM_READV, pid, local[1:], remote[1:])
	}
	return moveVector(unix.SYS_PROCESS_VM_READV, pid, local[:], remote[:])
}

// readSome reads in the address space of pid, and returns how many bytes it has: all of the first reads, and perhaps a
// part of the next one.
func readSome(pid int, reads []transport.Read) int {
	var local [transport.MaxReads]unix.Iovec
	var remote [transport.MaxReads]unix.RemoteIovec
	for i := range reads {
		b := reads[i].Dst.Bytes()
		local[i].Base = &b[0]
		local[i].SetLen(len(b))
		remote[i] = unix.RemoteIovec{Base: uintptr(reads[i].Addr), Len: len(b)}
	}
	n, _ := moveVector(unix.SYS_PROCESS_VM_READV, pid, local[:len(reads)], remote[:len(reads)])
	return n
}

// writePeer writes src to addr in the address space of pid.
func writePeer(pid int, src []byte, addr uint64) error {
	return moveMemory(unix.SYS_PROCESS_VM_WRITEV, "process_vm_writev", pid, src, addr)
}

// mayWrite reports why this process cannot call process_vm_writev, by a call that writes nothing.
func mayWrite() error {
	var local [1]unix.Iovec
	var remote [1]unix.RemoteIovec
	_, err := moveVector(unix.SYS_PROCESS_VM_WRITEV, unix.Getpid(), local[:], remote[:])
	return err
}

func moveMemory(call uintptr, name string, pid int, own []byte, peer uint64) error {
	for len(own) > 0 {
		n := min(len(own), getPiece)
		local := [1]unix.Iovec{{Base: &own[0]}}
		local[0].SetLen(n)
		remote := [1]unix.RemoteIovec{{Base: uintptr(peer), Len: n}}
		moved, err := moveVector(call, pid, local[:], remote[:])
		if err != nil {
			return fmt.Errorf("%s of %d bytes, process %d: %w", name, n, pid, err)
		}
		if moved == 0 {
			return fmt.Errorf("%s of %d bytes, process %d: nothing there", name, n, pid)
		}
		own, peer = own[moved:], peer+uint64(moved)
	}
	return nil
}

// moveVector is process_vm_readv or process_vm_writev: as many pieces here as there. It returns how many bytes it has
// moved.
func moveVector(call uintptr, pid int, local []unix.Iovec, remote []unix.RemoteIovec) (n int, err error) {
	moved, _, errno := unix.RawSyscall6(call, uintptr(pid), uintptr(unsafe.Pointer(&local[0])), uintptr(len(local)),
		uintptr(unsafe.Pointer(&remote[0])), uintptr(len(remote)), 0)
	if errno != 0 {
		return 0, errno
	}
	return int(moved), nil
}
