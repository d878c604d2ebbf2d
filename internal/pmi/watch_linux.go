package pmi

import (
	"net"
	"time"

	"golang.org/x/sys/unix"
)

// watchPeer makes the kernel end a TCP connection whose other end has not answered for that long: what was sent is
// not acknowledged (TCP_USER_TIMEOUT), or nothing was sent and probes are not (keep-alive). A control connection's
// receiver always reads, so that a closed window is no reason for silence.
func watchPeer(conn net.Conn, timeout time.Duration) {
	tcp, ok := conn.(*net.TCPConn)
	if !ok {
		return
	}
	probeAndSendAtOnce(tcp, timeout)
	raw, err := tcp.SyscallConn()
	if err != nil {
		return // the connection has ended, and so its next read fails
	}
	raw.Control(func(fd uintptr) {
		unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(timeout.Milliseconds()))
	})
}
