package launcher

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// A job answers "gorun status PID" at an abstract socket that has the PID in its name. Each end looks who the other is:
// the kernel says so.

const (
	statusLimit = 5 * time.Second // of one answer
	statusMost  = 1 << 20         // bytes of it
)

func statusAddress(pid int) *net.UnixAddr {
	return &net.UnixAddr{Net: "unix", Name: fmt.Sprintf("@gorun-status-%d", pid)}
}

// serveStatus answers until end is called.
func (r *run) serveStatus() (end func()) {
	l, err := net.ListenUnix("unix", statusAddress(os.Getpid()))
	if err != nil {
		r.log.Debug("gorun status will not find this job", "error", err)
		return func() {}
	}
	go func() {
		for {
			conn, err := l.AcceptUnix()
			if err != nil {
				return
			}
			if peer, err := peerOf(conn); err == nil && (peer.Uid == 0 || int(peer.Uid) == os.Geteuid()) {
				conn.SetDeadline(time.Now().Add(statusLimit))
				io.WriteString(conn, r.report())
			}
			conn.Close()
		}
	}()
	return func() { l.Close() }
}

func peerOf(conn *net.UnixConn) (cred *unix.Ucred, err error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil, err
	}
	if e := raw.Control(func(fd uintptr) {
		cred, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); e != nil {
		return nil, e
	}
	return cred, err
}

// Status asks the gorun with that PID, on this host, what its ranks do.
func Status(pid int) (string, error) {
	conn, err := net.DialUnix("unix", nil, statusAddress(pid))
	if errors.Is(err, unix.ECONNREFUSED) {
		return "", fmt.Errorf("process %d is no gorun that runs a job on this host (pgrep -a gorun lists them)", pid)
	}
	if err != nil {
		return "", err
	}
	defer conn.Close()
	if peer, err := peerOf(conn); err != nil || int(peer.Pid) != pid {
		return "", fmt.Errorf("another process answers in the place of gorun %d; it is not believed", pid)
	}
	conn.SetDeadline(time.Now().Add(statusLimit))
	text, err := io.ReadAll(io.LimitReader(conn, statusMost))
	if err == nil && len(text) == 0 {
		err = fmt.Errorf("gorun %d does not answer: it is another user's, or has just ended", pid)
	}
	return string(text), err
}
