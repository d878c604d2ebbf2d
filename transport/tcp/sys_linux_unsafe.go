//go:build linux

package tcp

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// These calls never block, so they bypass Go's scheduler: now and then it would take the processor away during one of
// them, and to get it back takes as long as a message.

// pollSet is epoll_wait without waiting.
func pollSet(fd int, events *[maxEvents]unix.EpollEvent) int {
	n, _, errno := unix.RawSyscall6(unix.SYS_EPOLL_PWAIT, uintptr(fd), uintptr(unsafe.Pointer(&events[0])),
		maxEvents, 0, 0, 0)
	if errno != 0 {
		return 0
	}
	return int(n)
}

// recv reads what is there into b, which is not empty. 0 and no error: the peer has closed.
func recv(fd int, b []byte) (int, syscall.Errno) {
	n, _, errno := unix.RawSyscall6(unix.SYS_RECVFROM, uintptr(fd), uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)),
		unix.MSG_DONTWAIT, 0, 0)
	if errno != 0 {
		return 0, errno
	}
	return int(n), 0
}

// send writes as much of b, which is not empty, as there is room for.
func send(fd int, b []byte) (int, syscall.Errno) {
	n, _, errno := unix.RawSyscall6(unix.SYS_SENDTO, uintptr(fd), uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)),
		unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL, 0, 0)
	if errno != 0 {
		return 0, errno
	}
	return int(n), 0
}

// sendMore is send of bytes that more will follow.
func sendMore(fd int, b []byte) (int, syscall.Errno) {
	n, _, errno := unix.RawSyscall6(unix.SYS_SENDTO, uintptr(fd), uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)),
		unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL|unix.MSG_MORE, 0, 0)
	if errno != 0 {
		return 0, errno
	}
	return int(n), 0
}

// sendBoth writes as much of a and then b as there is room for. Neither is empty.
func sendBoth(fd int, a, b []byte) (int, syscall.Errno) {
	parts := [2]unix.Iovec{{Base: &a[0]}, {Base: &b[0]}}
	parts[0].SetLen(len(a))
	parts[1].SetLen(len(b))
	msg := unix.Msghdr{Iov: &parts[0], Iovlen: 2}
	n, _, errno := unix.RawSyscall(unix.SYS_SENDMSG, uintptr(fd), uintptr(unsafe.Pointer(&msg)),
		unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
	if errno != 0 {
		return 0, errno
	}
	return int(n), 0
}

// readable reports whether there is something to read, or the end.
func readable(fd int) bool {
	p := unix.PollFd{Fd: int32(fd), Events: unix.POLLIN}
	var now unix.Timespec
	n, _, _ := unix.RawSyscall6(unix.SYS_PPOLL, uintptr(unsafe.Pointer(&p)), 1, uintptr(unsafe.Pointer(&now)), 0, 0, 0)
	return n == 1
}

func ringDoorbell(fd int) {
	one := uint64(1)
	unix.RawSyscall(unix.SYS_WRITE, uintptr(fd), uintptr(unsafe.Pointer(&one)), 8)
}

func clearDoorbell(fd int) {
	var count uint64
	unix.RawSyscall(unix.SYS_READ, uintptr(fd), uintptr(unsafe.Pointer(&count)), 8)
}
