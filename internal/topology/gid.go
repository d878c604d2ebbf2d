package topology

import (
	"fmt"
	"net/netip"
)

// ChooseGID says which entry of a port's table its queue pairs use, and why; -1 if none can be used. Over InfiniBand
// it is the first, which every port has. Over Ethernet: RoCE v2, because RoCE v1 passes no router and many switches
// treat it as an unknown protocol; of these the address that other subnets can reach; and among equals the first.
func ChooseGID(p Port) (index int, why string) {
	switch {
	case len(p.GIDs) == 0:
		return -1, "the port has no GID: is its network device up, and has it an address?"
	case p.Link == "InfiniBand":
		if p.GIDs[0].Index != 0 {
			return -1, "entry 0 of the port's GIDs is empty: is the link up?"
		}
		return 0, "InfiniBand: the port's own GID"
	}
	best := p.GIDs[0]
	for _, g := range p.GIDs[1:] {
		if cost(g) < cost(best) {
			best = g
		}
	}
	kind := string(best.Type)
	if kind == "" {
		kind = "unknown type"
	}
	why = kind + ", " + reach[reachOf(best.Addr)]
	if best.Net != "" {
		why += " of " + best.Net
	}
	if d := drawback(p.GIDs, best); d != "" {
		why += " (" + d + ")"
	}
	return best.Index, why
}

// cost orders GIDs: the one with the smallest is chosen.
func cost(g GID) int {
	n := 10 * reachOf(g.Addr)
	switch g.Type {
	case TypeUnknown:
		n += 100
	case TypeV1, TypeIB:
		n += 200
	}
	if g.Net == "" { // perhaps of a network device that is down, or of another container
		n++
	}
	return n
}

// reach are the kinds of addresses, the best first. A loopback address is better than a link-local one: a port that has
// it has no other network, and the kernel finds no way from there by link-local addresses.
var reach = []string{"IPv4 address", "global IPv6 address", "loopback address", "link-local IPv4 address",
	"link-local IPv6 address"}

func reachOf(a netip.Addr) int {
	v4 := a.Is4In6()
	a = a.Unmap()
	switch {
	case a.IsLoopback():
		return 2
	case a.IsLinkLocalUnicast() && v4:
		return 3
	case a.IsLinkLocalUnicast():
		return 4
	case v4:
		return 0
	}
	return 1
}

// drawback says what is wrong with the best GID, or "".
func drawback(all []GID, best GID) string {
	if best.Type == TypeV1 {
		return "no RoCE v2 entry: routers and RoCE v2 peers are out of reach"
	}
	if reachOf(best.Addr) == len(reach)-1 {
		return fmt.Sprintf("of %d entries none has an IP address: give the network device one", len(all))
	}
	return ""
}
