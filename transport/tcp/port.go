package tcp

import (
	"net"
	"net/netip"
)

// Listen opens a port of this host for another use than a device's. Reach takes the address, on any host.
func Listen(f Filter, ports PortRange) (ln net.Listener, address []byte, err error) {
	local, err := look(f)
	if err != nil {
		return nil, nil, err
	}
	l, err := listen(f, ports)
	if err != nil {
		return nil, nil, err
	}
	return l, local.publish(l).encode(), nil
}

// Reach returns where a port of Listen may be reached from this host, the most promising first.
func Reach(address []byte, f Filter) ([]netip.AddrPort, error) {
	a, err := parseAddress(address)
	if err != nil {
		return nil, err
	}
	local, err := look(f)
	if err != nil {
		return nil, err
	}
	return order(a, local), nil
}
