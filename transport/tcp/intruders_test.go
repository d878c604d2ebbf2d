package tcp

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/gorun-mpi/mpi/internal/auth"
	"github.com/gorun-mpi/mpi/internal/auth/authtest"
	"github.com/gorun-mpi/mpi/internal/testkit/proc"
)

// portOf is where d listens, on 127.0.0.1.
func portOf(t *testing.T, d *Device) string {
	t.Helper()
	a, err := parseAddress(d.Address())
	if err != nil || len(a.points) == 0 {
		t.Fatal(a, err)
	}
	return netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), a.points[0].Port()).String()
}

// A device authenticates by package auth, with TLS and without.
func TestIntruders(t *testing.T) {
	for _, secure := range []bool{false, true} {
		t.Run(fmt.Sprint("TLS ", secure), func(t *testing.T) {
			t.Parallel()
			const size = 64
			d := newDevice(t, 0, size, func(o *Options) { o.TLS, o.handshakeLimit = secure, time.Second })
			defer d.Close()
			port, next := portOf(t, d), 1
			authtest.Run(t, authtest.Listener{
				Dial: func() (net.Conn, error) { return net.Dial("tcp", port) },
				Member: func() *auth.Handshaker {
					return &auth.Handshaker{Protocol: protocol, Job: "test", Rank: 1, Size: size, TLS: secure,
						Secret: d.opt.Secret, Limit: hang, Patience: hang}
				},
				Refused: d.Facts().Refused,
				Works: func() error {
					peer := newDevice(t, next, size, func(o *Options) { o.TLS = secure })
					defer peer.Close()
					next++
					_, err := peer.Connect(context.Background(), 0, d.Address())
					return err
				},
			})
		})
	}
}

// Connections to an address that the filter excludes are refused.
func TestElsewhere(t *testing.T) {
	f, err := ParseInterfaces("!127.0.0.2")
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var lines []string
	d := newDevice(t, 0, 2, func(o *Options) {
		o.Interfaces = f
		o.Log = func(msg string, args ...any) {
			mu.Lock()
			defer mu.Unlock()
			lines = append(lines, msg)
		}
	})
	defer d.Close()
	conn, err := net.Dial("tcp", strings.Replace(portOf(t, d), "127.0.0.1", "127.0.0.2", 1))
	switch { // it may have been closed before Dial returns
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		t.Skip("127.0.0.2 is no address of this host: ", err)
	case err == nil:
		conn.Close()
	}
	proc.Eventually(t, "a line that says why", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(lines) == 1 && strings.Contains(lines[0], "GORUN_TCP_IF") && d.Facts().Refused() == 1
	})
}
