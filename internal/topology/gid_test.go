package topology

import (
	"net/netip"
	"strings"
	"testing"
)

func TestChooseGID(t *testing.T) {
	for _, c := range []struct {
		file, device string
		index        int
		why          string // part of it
	}{
		{"dgx", "mlx5_0", 0, "InfiniBand"},
		{"dgx", "mlx5_2", 3, "RoCE v2, IPv4 address of enp10s0"},
		{"roce", "mlx5_bond_0", 3, "RoCE v2, IPv4 address of bond0"}, // not 7, which is the VLAN's
		{"roce", "mlx5_2", 1, "give the network device one"},
		{"roce", "mlx4_0", 1, "no RoCE v2 entry"},
		{"soft-roce", "rxe0", 1, "RoCE v2, IPv4 address of rx0"},
	} {
		h := readFixture(t, c.file)
		index, why := ChooseGID(h.find(t, c.device).Ports[0])
		if index != c.index || !strings.Contains(why, c.why) {
			t.Errorf("%s %s: %d, %q; want %d, %q", c.file, c.device, index, why, c.index, c.why)
		}
	}
}

// The whole order, the best first: each entry is taken as long as it is there.
func TestGIDOrder(t *testing.T) {
	order := []GID{
		{Addr: netip.MustParseAddr("::ffff:10.0.0.1"), Type: TypeV2, Net: "eth0"},
		{Addr: netip.MustParseAddr("::ffff:10.0.0.2"), Type: TypeV2, Net: "eth0"},
		{Addr: netip.MustParseAddr("::ffff:10.0.0.3"), Type: TypeV2},
		{Addr: netip.MustParseAddr("2001:db8::1"), Type: TypeV2, Net: "eth0"},
		{Addr: netip.MustParseAddr("fd00::1"), Type: TypeV2, Net: "eth0"},
		{Addr: netip.MustParseAddr("::ffff:127.0.0.1"), Type: TypeV2, Net: "lo"},
		{Addr: netip.MustParseAddr("::1"), Type: TypeV2, Net: "lo"},
		{Addr: netip.MustParseAddr("::ffff:169.254.3.4"), Type: TypeV2, Net: "eth0"},
		{Addr: netip.MustParseAddr("fe80::1"), Type: TypeV2, Net: "eth0"},
		{Addr: netip.MustParseAddr("::ffff:10.0.0.1"), Net: "eth0"},
		{Addr: netip.MustParseAddr("fe80::1"), Net: "eth0"},
		{Addr: netip.MustParseAddr("::ffff:10.0.0.1"), Type: TypeV1, Net: "eth0"},
		{Addr: netip.MustParseAddr("fe80::1"), Type: TypeV1, Net: "eth0"},
	}
	for i := range order {
		order[i].Index = 100 + i
	}
	for first := range order {
		p := Port{Link: "Ethernet"}
		for i := len(order) - 1; i >= first; i-- { // the other way round, so that the place in the list is no help
			p.GIDs = append(p.GIDs, order[i])
		}
		if index, why := ChooseGID(p); index != order[first].Index && !equals(order[first], order[index-100]) {
			t.Errorf("of %+v: %d, %s", order[first:], index, why)
		}
	}
	p := Port{Link: "Ethernet", GIDs: order[:2]}
	if index, _ := ChooseGID(p); index != 100 {
		t.Errorf("of two equals: %d, want the first", index)
	}
}

func equals(a, b GID) bool { return cost(a) == cost(b) }

func TestChooseGIDNone(t *testing.T) {
	for what, p := range map[string]Port{
		"empty":                {Link: "Ethernet"},
		"InfiniBand, no entry": {Link: "InfiniBand"},
		"InfiniBand, no first": {Link: "InfiniBand", GIDs: []GID{{Index: 1, Addr: netip.MustParseAddr("fe80::1")}}},
	} {
		if index, why := ChooseGID(p); index != -1 || why == "" {
			t.Errorf("%s: %d, %q; want none, and why", what, index, why)
		}
	}
}
