package pmi

import (
	"net"
	"time"

	"github.com/gorun-mpi/mpi/internal/settings"
)

// probeAndSendAtOnce sets TCP_NODELAY, and keep-alive so that six probes fit into the time. The kernel counts whole
// seconds: for times under 3 s the end of an idle connection may be noticed a second late.
func probeAndSendAtOnce(tcp *net.TCPConn, timeout time.Duration) {
	tcp.SetNoDelay(true)
	tcp.SetKeepAliveConfig(net.KeepAliveConfig{
		Enable:   true,
		Idle:     max(timeout/3, time.Second).Truncate(time.Second),
		Interval: max(timeout/6, time.Second).Truncate(time.Second),
		Count:    5,
	})
}

// peerTimeout reads GORUN_PEER_TIMEOUT; "" is its default.
func peerTimeout(text string) (time.Duration, error) {
	set, _, err := settings.Load([]string{EnvPeerTimeout + "=" + text})
	return set.PeerTimeout, err
}
