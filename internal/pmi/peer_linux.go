package pmi

import (
	"net"

	"golang.org/x/sys/unix"
)

// LauncherPID is the process that made the control socket: the launcher, or its helper on this host. All ranks of the
// host descend from it. 0: it is not known, since it was dialled or is in another PID namespace.
func (c *Client) LauncherPID() (pid int) {
	conn, ok := c.conn.(*net.UnixConn)
	if !ok {
		return 0
	}
	raw, err := conn.SyscallConn()
	if err != nil {
		return 0
	}
	raw.Control(func(fd uintptr) {
		if cred, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); err == nil {
			pid = int(cred.Pid)
		}
	})
	return pid
}
