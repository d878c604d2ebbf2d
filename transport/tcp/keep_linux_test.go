package tcp

import (
	"context"
	"net"
	"net/netip"
	"os"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A host that dies in the middle of a handshake is found by keep-alive, however long a stopped process is waited for.
func TestKeepAliveInHandshake(t *testing.T) {
	d := newDevice(t, 0, 2)
	defer d.Close()
	asked := make(chan struct{}, 8)
	stuck := opens(t, func(nc net.Conn) { asked <- struct{}{}; stalls(nc) })
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		_, err := d.Connect(ctx, 1, address{d.local.host, []point{{stuck, loopback}}}.encode())
		done <- err
	}()
	<-asked
	kept := false
	for end := time.Now().Add(hang); !kept && time.Now().Before(end); time.Sleep(time.Millisecond) {
		kept = keepsAlive(t, stuck)
	}
	cancel()
	if <-done; !kept {
		t.Error("the connection has no keep-alive")
	}
}

// keepsAlive reports whether a socket of this process that is connected to this port has keep-alive.
func keepsAlive(t *testing.T, to netip.AddrPort) bool {
	t.Helper()
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range fds {
		fd, _ := strconv.Atoi(f.Name())
		peer, _ := unix.Getpeername(fd)
		if in, ok := peer.(*unix.SockaddrInet4); ok && in.Port == int(to.Port()) {
			on, _ := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_KEEPALIVE)
			return on == 1
		}
	}
	return false
}
