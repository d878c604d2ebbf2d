package tcp

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"strconv"
	"sync"
	"syscall"
	"time"
)

// filteredListener is a listener on all addresses that knows which of them are used.
type filteredListener struct {
	*net.TCPListener
	filter Filter

	mu    sync.Mutex // guards what follows
	known map[netip.Addr]bool
	asked time.Time // when known was made
}

// listen opens a port on all addresses, IPv6 and IPv4, or IPv4 alone where there is no IPv6.
func listen(f Filter, ports PortRange) (*filteredListener, error) {
	// keep (watch.go) sets keep-alive for connections that stay. A listener for multipath TCP has costs and no use
	// here.
	config := net.ListenConfig{KeepAlive: -1}
	config.SetMultipathTCP(false)
	try := func(port int) (*filteredListener, error) {
		ln, err := config.Listen(context.Background(), "tcp", ":"+strconv.Itoa(port))
		if err != nil {
			return nil, err
		}
		return &filteredListener{TCPListener: ln.(*net.TCPListener), filter: f}, nil
	}
	if ports.lo == 0 {
		ln, err := try(0)
		if err != nil {
			return nil, fmt.Errorf("listening on any port: %w", err)
		}
		return ln, nil
	}
	// Many ranks of a host look for a port at the same time: each begins somewhere else.
	count := int(ports.hi-ports.lo) + 1
	first := rand.IntN(count)
	for i := range count {
		port := int(ports.lo) + (first+i)%count
		ln, err := try(port)
		if err == nil {
			return ln, nil
		}
		if !errors.Is(err, syscall.EADDRINUSE) {
			return nil, fmt.Errorf("listening on port %d (GORUN_TCP_PORTS=%v): %w", port, ports, err)
		}
	}
	return nil, fmt.Errorf("listening: all %d ports of GORUN_TCP_PORTS=%v are taken; each rank on a host needs one",
		count, ports)
}

// refreshPause: connections to an address that is not used must not make this rank list interfaces all the time.
const refreshPause = time.Second

// allows reports whether connections to this address of ours are accepted.
func (l *filteredListener) allows(local netip.Addr) bool {
	if l.filter.text == "" {
		return true
	}
	local = local.WithZone("")
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.known[local] && (l.asked.IsZero() || time.Since(l.asked) > refreshPause) {
		l.refresh()
	}
	return l.known[local]
}

// refresh finds out which addresses are used; they may have changed since the start. mu is held.
func (l *filteredListener) refresh() {
	l.asked = time.Now()
	all, err := networks()
	if err != nil {
		return
	}
	l.known = map[netip.Addr]bool{}
	for _, n := range all {
		if l.filter.admits(n.name, n.prefix.Addr()) {
			l.known[n.prefix.Addr()] = true
		}
	}
}
