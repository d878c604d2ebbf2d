package procs

import (
	"fmt"
	"net"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// ControlPair returns the two ends of a rank's control socket.
func ControlPair() (near *net.UnixConn, far *os.File, err error) {
	syscall.ForkLock.RLock()
	p, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err == nil {
		syscall.CloseOnExec(p[0])
		syscall.CloseOnExec(p[1])
	}
	syscall.ForkLock.RUnlock()
	if err != nil {
		return nil, nil, fmt.Errorf("making a control socket: %w", err)
	}
	far = os.NewFile(uintptr(p[1]), "control")
	own := os.NewFile(uintptr(p[0]), "control")
	defer own.Close() // FileConn duplicates
	conn, err := net.FileConn(own)
	if err != nil {
		far.Close()
		return nil, nil, err
	}
	return conn.(*net.UnixConn), far, nil
}

// ControlFD returns the descriptor of the control socket in a rank: 3, or the first one behind those that gorun has
// inherited from 3 on. A rank inherits them too: the user has given them to the program (3<file).
var ControlFD = sync.OnceValue(func() int {
	fd := 3
	for inherited(fd) {
		fd++
	}
	return fd
})

// inherited reports whether a descriptor is open and goes on to a process that this one starts. A descriptor that Go
// opens does not.
func inherited(fd int) bool {
	flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
	return err == nil && flags&unix.FD_CLOEXEC == 0
}
