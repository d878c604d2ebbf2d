package launcher

import (
	"fmt"
	"net"
	"os"
	"syscall"
)

// Ends that stay here are non-blocking and known to the runtime's poller; ends that a process gets must be
// blocking, because programs expect that of their standard streams. All are close-on-exec.

// outPipe returns an end to read from here, and the end that a process writes to.
func outPipe() (near, far *os.File, err error) {
	r, w, err := pipe()
	if err != nil {
		return nil, nil, err
	}
	return nearEnd(r, "output"), os.NewFile(uintptr(w), "output"), nil
}

// inPipe returns an end to write to here, and the end that a process reads from.
func inPipe() (near, far *os.File, err error) {
	r, w, err := pipe()
	if err != nil {
		return nil, nil, err
	}
	return nearEnd(w, "input"), os.NewFile(uintptr(r), "input"), nil
}

func nearEnd(fd int, name string) *os.File {
	syscall.SetNonblock(fd, true) // NewFile asks and uses the poller then
	return os.NewFile(uintptr(fd), name)
}

func pipe() (r, w int, err error) {
	var p [2]int
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	if err := syscall.Pipe(p[:]); err != nil {
		return 0, 0, fmt.Errorf("making a pipe: %w", err)
	}
	syscall.CloseOnExec(p[0])
	syscall.CloseOnExec(p[1])
	return p[0], p[1], nil
}

// controlPair returns the two ends of a rank's control socket.
func controlPair() (near *net.UnixConn, far *os.File, err error) {
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
	mine := os.NewFile(uintptr(p[0]), "control")
	defer mine.Close() // FileConn duplicates
	conn, err := net.FileConn(mine)
	if err != nil {
		far.Close()
		return nil, nil, err
	}
	return conn.(*net.UnixConn), far, nil
}
