//go:build !linux

package pmi

import (
	"net"
	"time"
)

// watchPeer has probes find a dead peer while nothing is sent; what is sent waits for the system's own patience.
func watchPeer(conn net.Conn, timeout time.Duration) {
	if tcp, ok := conn.(*net.TCPConn); ok {
		probeAndSendAtOnce(tcp, timeout)
	}
}
