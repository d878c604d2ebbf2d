package topology

import (
	"regexp"
	"slices"
	"strings"
)

// Slot is a device's position on the PCI buses, from the host bridge down.
type Slot struct {
	// Bridge is the host bridge, where the buses begin: pci0000:00.
	Bridge string
	// Chain is the PCI addresses from there to the device, which is the last: root port, the two ports of each switch,
	// the device. Empty: no PCI device.
	Chain []string
}

// Address is the device's own PCI address; empty for what is no PCI device.
func (s Slot) Address() string {
	if len(s.Chain) == 0 {
		return ""
	}
	return s.Chain[len(s.Chain)-1]
}

var (
	hostBridge = regexp.MustCompile(`^pci[0-9a-f]{4,8}:[0-9a-f]{2}$`)
	pciAddress = regexp.MustCompile(`^[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]$`)
)

// parseSlot reads a device's path in /sys/devices. What stands before the host bridge (a platform device, a virtual
// bus) and behind the last PCI address (the class, a sub-function) does not matter.
func parseSlot(path string) (s Slot) {
	for part := range strings.SplitSeq(path, "/") {
		switch {
		case s.Bridge == "" && hostBridge.MatchString(part):
			s.Bridge = part
		case s.Bridge != "" && pciAddress.MatchString(part):
			s.Chain = append(s.Chain, part)
		}
	}
	if len(s.Chain) == 0 {
		return Slot{}
	}
	return s
}

// Near says how far apart two PCI devices are, in the words of nvidia-smi topo -m.
type Near string

const (
	PIX     Near = "PIX"  // below the same PCIe switch, or two functions of one card
	PXB     Near = "PXB"  // with several PCIe switches between, but no host bridge
	PHB     Near = "PHB"  // below the same host bridge: by way of the CPU's root complex
	NODE    Near = "NODE" // on the same NUMA node: between host bridges of one socket
	SYS     Near = "SYS"  // on the same host only: over the link between sockets
	None    Near = "-"    // the RDMA device is software, which moves data with the CPU
	Unknown Near = "?"    // /sys does not say where one of them is
)

// nearness explains the words, the nearest first.
var nearness = []struct {
	near Near
	text string
}{
	{PIX, "below one PCIe switch, or on one card: best for GPUDirect"},
	{PXB, "with that many PCIe switches between, and no CPU: as good for GPUDirect"},
	{PHB, "through one host bridge, that is the CPU: GPUDirect works, reading from the GPU may be slow"},
	{NODE, "through two host bridges of one NUMA node: GPUDirect may be slow, and needs GORUN_GPUDIRECT=on"},
	{SYS, "through the link between CPU sockets: GPUDirect may be very slow, and needs GORUN_GPUDIRECT=on"},
	{None, "software, no GPUDirect"},
	{Unknown, "unknown: /sys does not say where they are"},
}

// Nears returns all words, the nearest first.
func Nears() (all []Near) {
	for _, n := range nearness {
		all = append(all, n.near)
	}
	return all
}

// Meaning explains the word.
func (n Near) Meaning() string {
	for _, known := range nearness {
		if known.near == n {
			return known.text
		}
	}
	return ""
}

// Far reports whether messages go through memory of the host rather than by GPUDirect, unless the user says otherwise:
// between host bridges a READ from a GPU may be very slow, or not work.
func (n Near) Far() bool { return n == NODE || n == SYS }

// Between is Distance of the GPU with a PCI address and an RDMA device, of this machine, whose files are below root.
func Between(root, gpu, device string) (near Near, switches int) {
	r := reader{tree: newTree(root)}
	h, dir := Host{Nodes: r.nodes()}, "sys/class/infiniband/"+device
	target := r.real(dir)
	d := Device{Node: r.numaNode(dir + "/device"), Slot: parseSlot(target), Virtual: virtual(target)}
	g := GPU{Node: -1}
	pci := r.list("sys/bus/pci/devices")
	if i := slices.IndexFunc(pci, func(address string) bool { return sameAddress(address, gpu) }); i >= 0 {
		dir := "sys/bus/pci/devices/" + pci[i]
		g.Node, g.Slot = r.numaNode(dir), parseSlot(r.real(dir))
	}
	return h.Distance(g, d)
}

// Distance returns how near a GPU and an RDMA device are, and how many PCIe switches are between them (0 where their
// path has more than switches). The nearer, the better for GPUDirect: packets that stay below one switch never reach
// the CPU.
func (h *Host) Distance(g GPU, d Device) (near Near, switches int) {
	if d.Virtual {
		return None, 0
	}
	return distance(g.Slot, d.Slot, h.home(g.Node), h.home(d.Node))
}

// home is a device's NUMA node. A machine with a single node often does not say so of its devices.
func (h *Host) home(node int) int {
	if node < 0 && h.Nodes == 1 {
		return 0
	}
	return node
}

func distance(a, b Slot, nodeA, nodeB int) (near Near, switches int) {
	if a.Bridge == "" || b.Bridge == "" {
		return Unknown, 0
	}
	shared := 0
	for a.Bridge == b.Bridge && shared < min(len(a.Chain), len(b.Chain)) && a.Chain[shared] == b.Chain[shared] {
		shared++
	}
	switch {
	case shared > 0:
		switches = 1 + switchesBelow(a, shared) + switchesBelow(b, shared)
		if switches == 1 {
			return PIX, 1
		}
		return PXB, switches
	case a.Bridge == b.Bridge:
		return PHB, 0
	case nodeA < 0 || nodeB < 0:
		return Unknown, 0
	case nodeA == nodeB:
		return NODE, 0
	}
	return SYS, 0
}

// switchesBelow counts the switches between a device and the switch where its path meets the other's. Below the last
// shared port are that switch's second port and the device; each further switch adds two ports.
func switchesBelow(s Slot, shared int) int {
	return max(0, (len(s.Chain)-shared-1)/2)
}
