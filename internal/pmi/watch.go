package pmi

import (
	"fmt"
	"net"
	"time"
)

// defaultPeerTimeout is that of GORUN_PEER_TIMEOUT in internal/settings.
const defaultPeerTimeout = 30 * time.Second

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

func peerTimeout(env lookup) (time.Duration, error) {
	text := env(EnvPeerTimeout)
	if text == "" {
		return defaultPeerTimeout, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < time.Second {
		return 0, fmt.Errorf("%s=%.40q is no time of at least 1s; use for example 30s", EnvPeerTimeout, text)
	}
	return d, nil
}
