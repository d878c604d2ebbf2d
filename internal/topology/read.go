package topology

import (
	"fmt"
	"net/netip"
	"path"
	"slices"
	"strings"
)

// notAsked says why no device has capabilities before Merge.
const notAsked = "libibverbs was not asked"

// cudaNotAsked says why no GPU has what CUDA knows before MergeGPUs.
const cudaNotAsked = "CUDA was not asked"

// Read reads the kernel's files. A value that they lack is unknown.
func Read(src Source) Host {
	r := reader{newTree(src.Root), src.Addrs}
	h := Host{Nodes: r.nodes()}
	for _, name := range r.list("sys/class/infiniband") {
		h.Devices = append(h.Devices, r.device(name))
	}
	addresses := r.list("sys/bus/pci/devices")
	slices.Sort(addresses) // they are hexadecimal: 83 comes before 8a
	for _, address := range addresses {
		if g, ok := r.gpu(address); ok {
			h.GPUs = append(h.GPUs, g)
		}
	}
	if slices.ContainsFunc(h.GPUs, func(g GPU) bool { return g.Driver == driverNVIDIA }) {
		h.Support = r.support()
	}
	return h
}

// nodes is how many NUMA nodes there are.
func (r reader) nodes() int { return max(1, parseCount(r.text("sys/devices/system/node/online"))) }

type reader struct {
	tree
	addrs func(string) []netip.Prefix
}

func (r reader) device(name string) Device {
	dir := "sys/class/infiniband/" + name
	d := Device{
		Name:     clean(name),
		Kind:     parseState(r.text(dir + "/node_type")),
		Firmware: r.text(dir + "/fw_ver"),
		NodeGUID: r.text(dir + "/node_guid"),
		Board:    r.text(dir + "/board_id"),
		Node:     r.numaNode(dir + "/device"),
		Driver:   r.link(dir + "/device/driver"),
		CapsWhy:  notAsked,
	}
	target := r.real(dir)
	d.Slot, d.Virtual = parseSlot(target), virtual(target)
	numbers := r.indices(dir + "/ports")
	for _, number := range numbers {
		if number > 0 { // a switch's own port is 0, and nothing for us
			d.Ports = append(d.Ports, r.port(dir, number, len(numbers) == 1))
		}
	}
	return d
}

// NodeOf is the NUMA node of an RDMA device; -1: the kernel does not say.
func NodeOf(root, device string) int {
	return reader{tree: newTree(root)}.numaNode("sys/class/infiniband/" + device + "/device")
}

// NodeDistance is how far two NUMA nodes are from each other, in the kernel's measure: 10 is the node itself.
func NodeDistance(root string, a, b int) int {
	const local, remote, most = 10, 20, 1 << 10
	row := strings.Fields(newTree(root).text(fmt.Sprintf("sys/devices/system/node/node%d/distance", a)))
	if b >= 0 && b < len(row) {
		if n, ok := parseNumber(row[b]); ok && n > 0 {
			return min(n, most)
		}
	}
	if a == b {
		return local
	}
	return remote
}

// GIDAttrs says of an entry of a port's table what packets look like that use it, and whose network device it is of. A
// libibverbs before rdma-core 32 does not say so.
func GIDAttrs(root, device string, port, index int) (kind GIDType, net string) {
	t := newTree(root)
	dir := fmt.Sprintf("sys/class/infiniband/%s/ports/%d/", device, port)
	kind = parseGIDType(t.text(fmt.Sprintf("%sgid_attrs/types/%d", dir, index)), t.text(dir+"link_layer"))
	return kind, t.text(fmt.Sprintf("%sgid_attrs/ndevs/%d", dir, index))
}

// Virtual reports whether a device is software only: the kernel says so, or does not know it.
func Virtual(root, device string) bool {
	return virtual(newTree(root).real("sys/class/infiniband/" + device))
}

func virtual(target string) bool {
	return target == "" || strings.HasPrefix(target, "sys/devices/virtual/")
}

func (r reader) numaNode(dir string) int {
	if n, ok := r.number(dir + "/numa_node"); ok && n >= 0 {
		return n
	}
	return -1
}

func (r reader) port(device string, number int, only bool) Port {
	dir := fmt.Sprintf("%s/ports/%d", device, number)
	p := Port{
		Number: number,
		State:  parseState(r.text(dir + "/state")),
		Phys:   parseState(r.text(dir + "/phys_state")),
		Link:   r.text(dir + "/link_layer"),
		Rate:   parseRate(r.text(dir + "/rate")),
		LID:    -1,
	}
	if lid, ok := parseHex(r.text(dir+"/lid"), 16); ok {
		p.LID = int(lid)
	}
	p.GIDs = r.gids(dir, p.Link)
	for _, i := range r.indices(dir + "/pkeys") {
		if key, ok := parsePKey(r.text(fmt.Sprintf("%s/pkeys/%d", dir, i))); ok {
			p.PKeys = append(p.PKeys, PKey{i, key})
		}
	}
	p.Nets = r.nets(device, p, only)
	p.MTU, p.MTUFrom = guessMTU(p)
	return p
}

// gids leaves out the entries that are not in use: a table of 1,024 has three or four.
func (r reader) gids(dir, link string) (all []GID) {
	for _, i := range r.indices(dir + "/gids") {
		a, ok := parseGID(r.text(fmt.Sprintf("%s/gids/%d", dir, i)))
		if !ok {
			continue
		}
		all = append(all, GID{
			Index: i,
			Addr:  a,
			Type:  parseGIDType(r.text(fmt.Sprintf("%s/gid_attrs/types/%d", dir, i)), link),
			Net:   r.text(fmt.Sprintf("%s/gid_attrs/ndevs/%d", dir, i)),
		})
	}
	return all
}

// nets finds the network devices of a port: those that its GIDs name, which for a bond is the bond; without any
// (InfiniBand), those of the PCI device, if they are this port's.
func (r reader) nets(device string, p Port, only bool) (all []Net) {
	var names []string
	for _, g := range p.GIDs {
		if isName(g.Net) && !slices.Contains(names, g.Net) {
			names = append(names, g.Net)
		}
	}
	if len(names) == 0 {
		for _, name := range r.list(device + "/device/net") {
			port, ok := r.number(device + "/device/net/" + name + "/dev_port")
			if isName(name) && (only || ok && port == p.Number-1) {
				names = append(names, name)
			}
		}
	}
	for _, name := range names {
		all = append(all, r.net(name))
	}
	return all
}

// isName reports whether a network device's name, which a file says, may become part of a path.
func isName(s string) bool { return s != "" && s != "." && s != ".." && !strings.Contains(s, "/") }

func (r reader) net(name string) Net {
	dir := "sys/class/net/" + name
	n := Net{Name: clean(name), State: r.text(dir + "/operstate")}
	if slaves := r.text(dir + "/bonding/slaves"); slaves != "" {
		n.Members = strings.Fields(slaves)
	}
	if mtu, ok := r.number(dir + "/mtu"); ok && mtu > 0 {
		n.MTU = mtu
	}
	if r.addrs != nil {
		n.Addrs = r.addrs(name)
	}
	return n
}

// guessMTU is what the kernel makes the active MTU of an Ethernet port: the largest of the five that fits into the
// network device's MTU together with the longest headers (GRH 40, UDP 8, BTH 12, XRC 4, atomic 28, CRC 4).
func guessMTU(p Port) (mtu int, from string) {
	const headers = 40 + 8 + 12 + 4 + 28 + 4
	if p.Link != "Ethernet" || len(p.Nets) == 0 || p.Nets[0].MTU < 256+headers {
		return 0, ""
	}
	for mtu = 4096; mtu > p.Nets[0].MTU-headers; {
		mtu /= 2
	}
	return mtu, p.Nets[0].Name
}

// driverNVIDIA is the name of NVIDIA's driver, of whose GPUs alone ranks send the memory.
const driverNVIDIA = "nvidia"

const (
	vendorNVIDIA = 0x10de
	vendorAMD    = 0x1002
)

// gpu accepts display controllers (class 0x03) and accelerators (0x12) of the vendors whose memory NICs can reach, and
// all devices of their drivers.
func (r reader) gpu(address string) (GPU, bool) {
	dir := "sys/bus/pci/devices/" + address
	vendor, _ := parseHex(r.text(dir+"/vendor"), 16)
	class, _ := parseHex(r.text(dir+"/class"), 24)
	driver := r.link(dir + "/driver")
	known := vendor == vendorNVIDIA || vendor == vendorAMD
	if driver != driverNVIDIA && driver != "amdgpu" && !(known && (class>>16 == 0x03 || class>>16 == 0x12)) {
		return GPU{}, false
	}
	g := GPU{Name: r.model(address, vendor), Driver: driver, Node: r.numaNode(dir), Slot: parseSlot(r.real(dir)),
		CUDAWhy: cudaNotAsked}
	if g.Slot.Address() == "" { // the link leads nowhere: all that is known is its name
		g.Slot = Slot{Chain: []string{clean(address)}}
	}
	return g, true
}

func (r reader) model(address string, vendor uint32) string {
	dir := "sys/bus/pci/devices/" + address
	if text, err := r.read(path.Join("proc/driver/nvidia/gpus", address, "information")); err == nil {
		if model := parseModel(text); model != "" {
			return model
		}
	}
	if product := r.text(dir + "/product_name"); product != "" {
		return product
	}
	id, ok := parseHex(r.text(dir+"/device"), 16)
	if !ok {
		return ""
	}
	name := map[uint32]string{vendorNVIDIA: "NVIDIA ", vendorAMD: "AMD "}[vendor]
	return fmt.Sprintf("%s%04x:%04x", name, vendor, id)
}
