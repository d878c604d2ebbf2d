package topology

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/gorun-mpi/mpi/internal/topology/topologytest"
)

func names(h Host) (all []string) {
	for _, d := range h.Devices {
		all = append(all, d.Name)
	}
	return all
}

func TestDGX(t *testing.T) {
	h := readFixture(t, "dgx")
	want := []string{"mlx5_0", "mlx5_1", "mlx5_2", "mlx5_3", "mlx5_10"}
	if got := names(h); !slices.Equal(got, want) || h.Nodes != 2 {
		t.Fatalf("devices %v on %d nodes, want %v on 2", got, h.Nodes, want)
	}
	if got := h.find(t, "mlx5_0"); !reflect.DeepEqual(got, Device{
		Name: "mlx5_0", Kind: "CA", Firmware: "20.38.1002", NodeGUID: "b859:9f03:00aa:0000", Board: "MT_0000000223",
		Node: 0, Driver: "mlx5_core",
		Slot:    Slot{"pci0000:00", []string{"0000:00:01.0", "0000:01:00.0", "0000:02:04.0", "0000:04:00.0"}},
		CapsWhy: notAsked,
		Ports: []Port{{
			Number: 1, State: "ACTIVE", Phys: "LinkUp", Link: "InfiniBand", Rate: "200 Gb/s (4X HDR)", LID: 16,
			GIDs:  []GID{{0, netip.MustParseAddr("fe80::b859:9f03:aa:0"), TypeIB, ""}},
			PKeys: []PKey{{0, 0xffff}, {1, 0x8012}},
			Nets:  []Net{{Name: "ibp4s0", State: "up", MTU: 2044}},
		}},
	}) {
		t.Errorf("mlx5_0 is %+v", got)
	}
	down := h.find(t, "mlx5_3").Ports[0]
	if down.State != "DOWN" || down.Phys != "Disabled" || down.LID != 0xffff || len(down.Nets) != 0 {
		t.Errorf("mlx5_3 is %+v", down)
	}
	var gpus []string
	for _, g := range h.GPUs {
		gpus = append(gpus, fmt.Sprint(g.Slot.Address(), " ", g.Name, " ", g.Driver, " ", g.Node))
	}
	if want := []string{
		"0000:03:00.0 NVIDIA A100-SXM4-80GB nvidia 0", "0000:07:00.0 NVIDIA A100-SXM4-80GB nvidia 0",
		"0000:83:00.0 NVIDIA A100-SXM4-80GB nvidia 1", "0000:84:00.0 NVIDIA A100-SXM4-80GB nvidia 1",
	}; !slices.Equal(gpus, want) {
		t.Errorf("GPUs %q, want %q", gpus, want)
	}
}

// matrix is what gorun info prints: a line for each GPU.
func matrix(h Host) (lines []string) {
	for _, g := range h.GPUs {
		var cells []string
		for _, d := range h.Devices {
			near, switches := h.Distance(g, d)
			cells = append(cells, fmt.Sprint(near, switches))
		}
		lines = append(lines, strings.Join(cells, " "))
	}
	return lines
}

// Between finds the same for each pair of devices, however the driver writes the GPU's address.
func TestBetween(t *testing.T) {
	for _, tree := range []string{"dgx", "h100", "roce", "soft-roce", "laptop"} {
		root := topologytest.Plant(t, topologytest.Load(t, tree))
		h := Read(Source{Root: root})
		for _, d := range h.Devices {
			for _, g := range h.GPUs {
				want, n := h.Distance(g, d)
				for _, address := range []string{g.Slot.Address(), "0000" + strings.ToUpper(g.Slot.Address())} {
					if near, switches := Between(root, address, d.Name); near != want || switches != n {
						t.Errorf("%s, %s and %s: %s%d, want %s%d", tree, address, d.Name, near, switches, want, n)
					}
				}
			}
			if near, _ := Between(root, "0000:fe:00.0", d.Name); near != Unknown && !d.Virtual {
				t.Errorf("%s: %s and a GPU that is not there: %s", tree, d.Name, near)
			}
		}
	}
	if near, _ := Between(t.TempDir(), "0000:03:00.0", "softhca0"); near != None {
		t.Errorf("a device that the kernel does not know: %s", near)
	}
}

// Each word has a meaning, and what is far is farther than what is not.
func TestNears(t *testing.T) {
	far := false
	for _, n := range []Near{PIX, PXB, PHB, NODE, SYS} {
		if n.Meaning() == "" || far && !n.Far() || !slices.Contains(Nears(), n) {
			t.Errorf("%s is %q, %v", n, n.Meaning(), n.Far())
		}
		far = n.Far()
	}
	if Unknown.Far() || None.Far() || PHB.Far() || !NODE.Far() || !SYS.Far() {
		t.Error("far begins between host bridges")
	}
}

// Drawn by hand from the picture at the head of dgx.txt.
func TestDistances(t *testing.T) {
	want := []string{
		//  mlx5_0 mlx5_1 mlx5_2 mlx5_3 mlx5_10
		"PIX1 PXB2 PHB0 NODE0 SYS0", // GPU 03, below switch A
		"PXB2 PIX1 PHB0 NODE0 SYS0", // GPU 07, below switch B
		"SYS0 SYS0 SYS0 SYS0 PIX1",  // GPU 83
		"SYS0 SYS0 SYS0 SYS0 PIX1",  // GPU 84
	}
	if got := matrix(readFixture(t, "dgx")); !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestDistanceOfPaths(t *testing.T) {
	const (
		devices = "sys/devices/"
		port    = devices + "pci0000:00/0000:00:01.0/" // a root port
		card    = port + "0000:01:00.0"
		below   = port + "0000:01:00.0/0000:02:00.0/0000:03:00.0" // behind a switch
		beside  = port + "0000:01:00.0/0000:02:01.0/0000:04:00.0" // behind another port of the switch
		far     = devices + "pci0000:80/0000:80:02.0/0000:81:00.0"
		cloud   = devices + "LNXSYSTM:00/VMBUS:00/"
	)
	for _, c := range []struct {
		what, a, b   string
		nodeA, nodeB int
		want         Near
		switches     int
	}{
		{"two functions of a card", card, port + "0000:01:00.1/infiniband/mlx5_1", 0, 0, PIX, 1},
		{"the same switch", below, beside, 0, 0, PIX, 1},
		{"a sub-function of a card", below, beside + "/mlx5_core.sf.2/infiniband/mlx5_4", 0, 0, PIX, 1},
		{"a card with a switch of its own", below, beside + "/0000:05:00.0/0000:06:00.0", 0, 0, PXB, 2},
		{"two switches below a third", below + "/0000:04:00.0/0000:05:00.0",
			port + "0000:01:00.0/0000:02:01.0/0000:06:00.0/0000:07:00.0/0000:08:00.0", 0, 0, PXB, 3},
		{"root ports of one bridge", card, devices + "pci0000:00/0000:00:02.0/0000:09:00.0", 0, 0, PHB, 0},
		{"on the root bus, as in a guest",
			devices + "pci0000:00/0000:00:05.0", devices + "pci0000:00/0000:00:06.0", -1, -1, PHB, 0},
		{"two bridges of a node", card, devices + "pci0000:40/0000:40:02.0/0000:41:00.0", 1, 1, NODE, 0},
		{"two nodes", card, far, 0, 1, SYS, 0},
		{"a cloud's own buses", cloud + "47505500-0001-0000-3130-444531454238/pci0001:00/0001:00:00.0",
			cloud + "00000101-1111/pci0101:00/0101:00:00.0", 0, 0, NODE, 0},
		{"unknown nodes", card, far, -1, 0, Unknown, 0},
		{"an unknown path", card, "", 0, 0, Unknown, 0},
		{"the same bus number in another domain",
			devices + "pci0000:00/0000:00:01.0", devices + "pci0001:00/0001:00:01.0", 0, 0, NODE, 0},
	} {
		for _, turned := range []bool{false, true} {
			if turned {
				c.a, c.b, c.nodeA, c.nodeB = c.b, c.a, c.nodeB, c.nodeA
			}
			near, switches := distance(parseSlot(c.a), parseSlot(c.b), c.nodeA, c.nodeB)
			if near != c.want || switches != c.switches {
				t.Errorf("%s: %s %d, want %s %d", c.what, near, switches, c.want, c.switches)
			}
		}
	}
}

// A machine of one node often has -1 for all of its devices, and then all are on that one.
func TestOneNode(t *testing.T) {
	g := GPU{Node: -1, Slot: parseSlot("pci0000:00/0000:00:01.0")}
	d := Device{Node: -1, Slot: parseSlot("pci0000:80/0000:80:01.0")}
	for nodes, want := range map[int]Near{1: NODE, 2: Unknown} {
		h := Host{Nodes: nodes}
		if near, _ := h.Distance(g, d); near != want {
			t.Errorf("%d nodes: %s, want %s", nodes, near, want)
		}
	}
}

func TestRoCE(t *testing.T) {
	h := readFixture(t, "roce")
	bond := h.find(t, "mlx5_bond_0").Ports[0]
	if len(bond.GIDs) != 8 || bond.GIDs[3].Type != TypeV2 || bond.GIDs[2].Type != TypeV1 ||
		bond.GIDs[3].Addr.String() != "::ffff:10.1.2.3" || bond.GIDs[7].Net != "bond0.100" {
		t.Errorf("GIDs %+v", bond.GIDs)
	}
	if len(bond.Nets) != 2 || !slices.Equal(bond.Nets[0].Members, []string{"ens1f0np0", "ens1f1np1"}) ||
		bond.Nets[0].MTU != 9000 || len(bond.Nets[0].Addrs) != 3 {
		t.Errorf("network devices %+v", bond.Nets)
	}
	for name, want := range map[string]string{"mlx5_bond_0": "4096 bond0", "mlx5_2": "4096 ens3f0",
		"mlx4_0": "1024 ens4"} {
		if p := h.find(t, name).Ports[0]; fmt.Sprint(p.MTU, " ", p.MTUFrom) != want {
			t.Errorf("%s: MTU %d of %q, want %s", name, p.MTU, p.MTUFrom, want)
		}
	}
	if len(h.GPUs) != 1 || h.GPUs[0].Name != "AMD Instinct MI300X OAM" {
		t.Errorf("GPUs %+v", h.GPUs)
	}
	if got, want := matrix(h), []string{"PHB0 PHB0 SYS0"}; !slices.Equal(got, want) { // mlx4_0, mlx5_2, mlx5_bond_0
		t.Errorf("distances %q, want %q", got, want)
	}
}

// The active MTU that belongs to a network device's, where the kernel's rule changes its mind.
func TestGuessMTU(t *testing.T) {
	for mtu, want := range map[int]int{0: 0, 300: 0, 351: 0, 352: 256, 607: 256, 608: 512, 1119: 512, 1120: 1024,
		1500: 1024, 2144: 2048, 4191: 2048, 4192: 4096, 4200: 4096, 9000: 4096, 65536: 4096} {
		p := Port{Link: "Ethernet", Nets: []Net{{Name: "eth0", MTU: mtu}}}
		if got, _ := guessMTU(p); got != want {
			t.Errorf("a network device's MTU of %d: %d, want %d", mtu, got, want)
		}
	}
	if got, _ := guessMTU(Port{Link: "InfiniBand", Nets: []Net{{MTU: 2044}}}); got != 0 {
		t.Errorf("InfiniBand: %d; IPoIB's MTU says nothing", got)
	}
}

func TestLaptop(t *testing.T) {
	for name, root := range map[string]string{
		"laptop": topologytest.Plant(t, topologytest.Load(t, "laptop")), "empty": t.TempDir(),
		"nowhere": filepath.Join(t.TempDir(), "no"),
	} {
		if h := Read(Source{Root: root}); len(h.Devices) != 0 || len(h.GPUs) != 0 || h.Nodes != 1 {
			t.Errorf("%s: %+v", name, h)
		}
	}
}

// A card of two ports that are one device: each network device belongs to the port that it names.
func TestTwoPorts(t *testing.T) {
	const dev = "sys/devices/pci0000:00/0000:00:01.0"
	all := []topologytest.Entry{
		{Path: "sys/class/infiniband/mlx4_0", Target: "../../devices/pci0000:00/0000:00:01.0/infiniband/mlx4_0"},
		{Path: dev + "/infiniband/mlx4_0/device", Target: "../../../0000:00:01.0"},
	}
	for i, net := range []string{"ib0", "ib1"} {
		all = append(all,
			topologytest.Entry{Path: fmt.Sprintf("%s/net/%s/dev_port", dev, net), Text: fmt.Sprint(i, "\n")},
			topologytest.Entry{Path: fmt.Sprintf("%s/infiniband/mlx4_0/ports/%d/state", dev, i+1), Text: "4: ACTIVE\n"})
	}
	all = append(all, topologytest.Entry{Path: dev + "/infiniband/mlx4_0/ports/0/state", Text: "4: ACTIVE\n"},
		topologytest.Entry{Path: dev + "/infiniband/mlx4_0/ports/x/state", Text: "4: ACTIVE\n"})
	h := Read(Source{Root: topologytest.Plant(t, all)})
	ports := h.find(t, "mlx4_0").Ports
	if len(ports) != 2 || len(ports[0].Nets) != 1 || ports[0].Nets[0].Name != "ib0" || len(ports[1].Nets) != 1 ||
		ports[1].Nets[0].Name != "ib1" {
		t.Errorf("ports %+v", ports)
	}
}

// This machine, whatever it has.
func TestHere(t *testing.T) {
	h := Read(Source{Root: "/", Addrs: Addrs})
	if entries, err := os.ReadDir("/sys/class/infiniband"); err == nil && len(entries) != len(h.Devices) {
		t.Errorf("%d devices in /sys/class/infiniband, read as %+v", len(entries), h.Devices)
	}
	if got := Addrs("no such device"); got != nil {
		t.Errorf("addresses %v of nothing", got)
	}
}

func TestSoftRoCE(t *testing.T) {
	h := readFixture(t, "soft-roce")
	d := h.find(t, "rxe0")
	want := Device{Name: "rxe0", Kind: "CA", NodeGUID: "d435:4fff:fe60:a606", Node: -1, Virtual: true,
		CapsWhy: notAsked, Ports: []Port{{
			Number: 1, State: "ACTIVE", Phys: "LinkUp", Link: "Ethernet", Rate: "2.5 Gb/s (1X SDR)", MTU: 4096,
			MTUFrom: "rx0",
			GIDs: []GID{{0, netip.MustParseAddr("fe80::d435:4fff:fe60:a606"), TypeV2, "rx0"},
				{1, netip.MustParseAddr("::ffff:10.99.0.1"), TypeV2, "rx0"}},
			PKeys: []PKey{{0, 0xffff}},
			Nets: []Net{{Name: "rx0", State: "unknown", MTU: 9000,
				Addrs: []netip.Prefix{netip.MustParsePrefix("10.99.0.1/24")}}},
		}}}
	if !reflect.DeepEqual(d, want) {
		t.Errorf("rxe0 is\n%+v, want\n%+v", d, want)
	}
	if near, _ := h.Distance(GPU{Slot: parseSlot("pci0000:00/0000:00:01.0")}, d); near != None {
		t.Errorf("rxe0 is %s to a GPU", near)
	}
}

func TestGPUOrder(t *testing.T) {
	var all []topologytest.Entry
	for _, address := range []string{"0000:8a:00.0", "0000:83:00.0", "0001:01:00.0", "0000:09:00.0"} {
		all = append(all, topologytest.Entry{Path: "sys/bus/pci/devices/" + address + "/vendor", Text: "0x1002\n"},
			topologytest.Entry{Path: "sys/bus/pci/devices/" + address + "/class", Text: "0x038000\n"})
	}
	var got []string
	for _, g := range Read(Source{Root: topologytest.Plant(t, all)}).GPUs {
		got = append(got, g.Slot.Address())
	}
	if want := []string{"0000:09:00.0", "0000:83:00.0", "0000:8a:00.0", "0001:01:00.0"}; !slices.Equal(got, want) {
		t.Errorf("GPUs %v, want %v", got, want)
	}
}
