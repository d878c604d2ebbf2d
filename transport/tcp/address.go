package tcp

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
)

// address is what a device publishes: where it listens. Encoded:
//
//	byte 0         1        2                18
//	┌─────────┬─────────┬───────────────────┬──────────────────────────────────────────┬─────
//	│ version │ points  │ host, 16 bytes    │ kind │ IP, 4 or 16 bytes │ port u16      │ …
//	└─────────┴─────────┴───────────────────┴──────────────────────────────────────────┴─────
//
// kind is the class, and 16 more for IPv6. At most pointsMax points, so at most 322 bytes.
type address struct {
	host   hostID
	points []point
}

// hostID is the same for two ranks exactly if their loopback is the same.
type hostID [16]byte

// point is one way in.
type point struct {
	netip.AddrPort // never mapped from IPv4, without a zone
	class          class
}

// class is what the publisher knows of an address.
type class uint8

const (
	plain    class = iota
	loopback       // of use on the same host only
	virtual        // of a bridge or container network, which other hosts may have too, with the same addresses
	classes
)

const (
	addressVersion = 1
	pointsMax      = 16
	kindSix        = 16
	pointsAt       = 18
)

func (a address) encode() []byte {
	b := append([]byte{addressVersion, byte(len(a.points))}, a.host[:]...)
	for _, p := range a.points {
		kind := byte(p.class)
		if p.Addr().Is6() {
			kind |= kindSix
		}
		b = append(append(b, kind), p.Addr().AsSlice()...)
		b = binary.BigEndian.AppendUint16(b, p.Port())
	}
	return b
}

// parseAddress takes what a peer has published, which is as hostile as what comes over a socket. What it takes is
// exactly what encode makes.
func parseAddress(b []byte) (address, error) {
	var a address
	if len(b) < pointsAt || b[0] != addressVersion {
		return a, fmt.Errorf("%d bytes that are no TCP address of version %d", len(b), addressVersion)
	}
	count := int(b[1])
	copy(a.host[:], b[2:])
	if count > pointsMax {
		return address{}, fmt.Errorf("a TCP address of %d points, the most is %d", count, pointsMax)
	}
	a.points = make([]point, 0, count)
	for b = b[pointsAt:]; len(a.points) < count; {
		p, size, err := parsePoint(b)
		if err != nil {
			return address{}, fmt.Errorf("a TCP address whose point %d %w", len(a.points), err)
		}
		a.points = append(a.points, p)
		b = b[size:]
	}
	if len(b) > 0 {
		return address{}, fmt.Errorf("a TCP address with %d bytes too many", len(b))
	}
	return a, nil
}

func parsePoint(b []byte) (p point, size int, err error) {
	if len(b) == 0 {
		return p, 0, fmt.Errorf("is missing")
	}
	p.class = class(b[0] &^ kindSix)
	width := 4
	if b[0]&kindSix != 0 {
		width = 16
	}
	if size = 1 + width + 2; len(b) < size || p.class >= classes {
		return p, 0, fmt.Errorf("is cut off or of an unknown kind")
	}
	a, _ := netip.AddrFromSlice(b[1 : 1+width])
	p.AddrPort = netip.AddrPortFrom(a, binary.BigEndian.Uint16(b[1+width:]))
	if !usable(a) || p.Port() == 0 || a.IsLoopback() != (p.class == loopback) {
		return p, 0, fmt.Errorf("is %v, which cannot be dialled", p.AddrPort)
	}
	return p, size, nil
}

// usable reports whether the address is a single host's and means the same on another.
func usable(a netip.Addr) bool {
	broadcast := netip.AddrFrom4([4]byte{255, 255, 255, 255})
	return a.IsValid() && !a.Is4In6() && !a.IsUnspecified() && !a.IsMulticast() && a != broadcast &&
		!(a.Is6() && a.IsLinkLocalUnicast())
}

// network is one address of this host, and the network that it is in.
type network struct {
	name   string // of the interface
	prefix netip.Prefix
	class  class
}

// localNets is where a rank is: what it can be reached by, and what it can reach.
type localNets struct {
	host     hostID
	networks []network
}

// look finds out. Only networks that pass the filter are in it.
func look(f Filter) (localNets, error) {
	all, err := networks()
	if err != nil {
		return localNets{}, err
	}
	picked, err := f.pick(all)
	return localNets{identity(), picked}, err
}

// networks are all addresses of interfaces that are up, but IPv6's link-local ones, which need a name that only means
// something here.
func networks() ([]network, error) {
	interfaces, err := net.Interfaces()
	if err != nil {
		return nil, fmt.Errorf("the list of network interfaces: %w", err)
	}
	var all []network
	for _, ifc := range interfaces {
		addrs, err := ifc.Addrs()
		if ifc.Flags&net.FlagUp == 0 || err != nil {
			continue
		}
		for _, a := range addrs {
			if n, ok := asNetwork(ifc.Name, a); ok {
				all = append(all, n)
			}
		}
	}
	return all, nil
}

func asNetwork(name string, a net.Addr) (network, bool) {
	ip, ok := a.(*net.IPNet)
	if !ok {
		return network{}, false
	}
	addr, ok := netip.AddrFromSlice(ip.IP)
	addr = addr.Unmap()
	bits, _ := ip.Mask.Size()
	if len(ip.Mask) == net.IPv6len && addr.Is4() {
		bits -= 96
	}
	n := network{name, netip.PrefixFrom(addr, bits), classOf(name, addr)}
	return n, ok && n.prefix.IsValid() && usable(addr)
}

// Interfaces of these names are bridges and container networks. A bridge that the host itself is on is mostly called
// br0, and is not among them.
var virtualNames = []string{
	"docker", "br-", "virbr", "veth", "vnet", "cni", "cali", "cilium", "flannel", "weave", "kube-", "podman", "nerdctl",
	"lxc", "lxd", "incus", "vmnet", "vboxnet", "bridge1",
}

func classOf(name string, a netip.Addr) class {
	begins := func(prefix string) bool { return strings.HasPrefix(name, prefix) }
	switch {
	case a.IsLoopback():
		return loopback
	case a.IsLinkLocalUnicast(), slices.ContainsFunc(virtualNames, begins):
		return virtual
	}
	return plain
}

// publish is the address of a rank that listens on ln in v.
func (v *localNets) publish(ln net.Listener) address {
	at := ln.Addr().(*net.TCPAddr).AddrPort()
	a := address{host: v.host}
	for c := range classes {
		var points []point
		for _, n := range v.networks {
			if n.class == c && (n.prefix.Addr().Is4() || !at.Addr().Unmap().Is4()) {
				points = append(points, point{netip.AddrPortFrom(n.prefix.Addr(), at.Port()), c})
			}
		}
		a.points = append(a.points, interleave(points)...)
	}
	return a.atMost(pointsMax)
}

// atMost leaves points out if there are too many, the virtual ones first. They come in order of class.
func (a address) atMost(most int) address {
	ofClass := func(c class) (points []point) {
		for _, p := range a.points {
			if p.class == c {
				points = append(points, p)
			}
		}
		return points
	}
	kept := ofClass(loopback)
	kept = kept[:min(len(kept), 2)]
	others := append(ofClass(plain), ofClass(virtual)...)
	a.points = append(kept, others[:min(len(others), most-len(kept))]...)
	return a
}

// interleave puts IPv4 and IPv6 in turns (RFC 8305, section 4): if one of the two leads nowhere, the second attempt is
// of the other. Otherwise the order stays. IPv4 is first, unlike there: its headers are 20 bytes shorter, and messages
// of 1 to 16 KiB came 3 to 10 % sooner.
func interleave(points []point) []point {
	var six, four, mixed []point
	for _, p := range points {
		if p.Addr().Is6() {
			six = append(six, p)
		} else {
			four = append(four, p)
		}
	}
	for len(six)+len(four) > 0 {
		if len(four) > 0 {
			mixed, four = append(mixed, four[0]), four[1:]
		}
		if len(six) > 0 {
			mixed, six = append(mixed, six[0]), six[1:]
		}
	}
	return mixed
}

// near is how promising a point is; less is better.
type near uint8

const (
	nearLoopback near = iota // the peer is on this host
	nearSubnet               // both are in the same network
	nearRoute                // a router may know the way
	nearVirtual              // a bridge, or a network that there may be another one of
	nearSelf                 // an address that this host has too, and the peer is on another
	nowhere                  // its loopback
)

// order returns where to try to reach peer from v, the best first.
func order(peer address, v localNets) []netip.AddrPort {
	groups := make([][]point, nowhere)
	for _, p := range peer.points {
		if n := v.near(p, peer.host == v.host); n < nowhere {
			groups[n] = append(groups[n], p)
		}
	}
	var sorted []netip.AddrPort
	for _, group := range groups {
		for _, p := range interleave(group) {
			sorted = append(sorted, p.AddrPort)
		}
	}
	return sorted
}

func (v *localNets) near(p point, sameHost bool) near {
	ours := v.towards(p.Addr())
	switch {
	case p.class == loopback && sameHost:
		return nearLoopback
	case p.class == loopback:
		return nowhere
	case !sameHost && v.has(p.Addr()):
		return nearSelf
	case p.class == virtual, ours != nil && ours.class == virtual:
		return nearVirtual
	case ours != nil:
		return nearSubnet
	}
	return nearRoute
}

func (v *localNets) has(a netip.Addr) bool {
	return slices.ContainsFunc(v.networks, func(n network) bool { return n.prefix.Addr() == a })
}

// towards is the network of v that a is in, the narrowest, as routing has it; nil: none.
func (v *localNets) towards(a netip.Addr) (best *network) {
	for i := range v.networks {
		n := &v.networks[i]
		if n.prefix.IsSingleIP() || !n.prefix.Contains(a) {
			continue
		}
		if best == nil ||
			cmp.Or(cmp.Compare(best.prefix.Bits(), n.prefix.Bits()), cmp.Compare(n.class, best.class)) < 0 {
			best = n
		}
	}
	return best
}

// identify makes an identity of what a system knows of itself.
func identify(parts ...string) (id hostID) {
	sum := sha256.Sum256([]byte("gorun tcp host " + strings.Join(parts, "\x00")))
	copy(id[:], sum[:])
	return id
}

// guess is part of an identity where the system has no better one: the name and all hardware addresses.
func guess(name string) string {
	interfaces, _ := net.Interfaces()
	var s []string
	for _, ifc := range interfaces {
		s = append(s, ifc.HardwareAddr.String())
	}
	slices.Sort(s)
	return name + " " + strings.Join(slices.Compact(s), " ")
}
