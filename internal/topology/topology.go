package topology

import (
	"fmt"
	"net"
	"net/netip"
)

// Source is where to read.
type Source struct {
	// Root has sys, proc and boot below it: "/", or a test's own.
	Root string
	// Addrs returns the addresses of a network device, for which the kernel has no files; nil: none are known.
	Addrs func(name string) []netip.Prefix
}

// Host is what a machine has.
type Host struct {
	Devices []Device // RDMA devices, in the order of their names
	GPUs    []GPU    // in the order of their PCI addresses
	// Nodes is how many NUMA nodes there are, at least 1.
	Nodes int
	// Support is read where a GPU has NVIDIA's driver.
	Support Support
}

// Device is one RDMA device. A text that is empty is unknown, and so is a number that is negative.
type Device struct {
	Name     string // mlx5_0
	Kind     string // CA, RNIC (iWARP), usNIC …
	Firmware string
	NodeGUID string // b859:9f03:00aa:bbcc
	Board    string // the vendor's name for the card: MT_0000000223
	Node     int    // NUMA node
	Slot     Slot   // zero: unknown, or none
	Driver   string // of the PCI device: mlx5_core, efa, bnxt_en
	Virtual  bool   // software only: no PCI device, and the CPU moves the data
	Ports    []Port

	// Library is the source of Caps: libibverbs.so.1, or the path of a library in its place; empty for a device that
	// only the kernel's files know.
	Library string
	// Caps is nil where libibverbs was not asked or did not answer; then CapsWhy says why.
	Caps    *Caps
	CapsWhy string
	// Unfit says why the transport verbs cannot use the device, where libibverbs was asked; empty: it can.
	Unfit string `json:",omitempty"`
}

// Port is one port of a device. Numbers begin with 1.
type Port struct {
	Number int
	State  string // ACTIVE, DOWN, INIT, ARMED
	Phys   string // LinkUp, Polling, Disabled …
	Link   string // InfiniBand, Ethernet
	Rate   string // 100 Gb/s (4X EDR)
	LID    int    // 0 for Ethernet and before a subnet manager has assigned one
	// MTU is the active one in bytes: 256, 512 … 4096. Only libibverbs knows it. Before Merge it is what the kernel
	// derives from the MTU of the network device MTUFrom, or 0.
	MTU     int
	MTUFrom string
	GIDs    []GID
	PKeys   []PKey
	Nets    []Net
}

// GID is one entry of a port's table that is in use.
type GID struct {
	Index int
	Addr  netip.Addr // all 16 bytes, without a zone
	Type  GIDType
	Net   string // network device; empty for InfiniBand, or where another container has it
}

// GIDType says how packets look that use a GID.
type GIDType string

const (
	TypeUnknown GIDType = ""
	TypeIB      GIDType = "IB"
	TypeV1      GIDType = "RoCE v1" // Ethernet frames, which no router forwards
	TypeV2      GIDType = "RoCE v2" // UDP over IP
)

// PKey is one partition that a port is in.
type PKey struct {
	Index int
	Value uint16 // with the top bit: a full member
}

// Full reports whether the port may talk to all of the partition, and not only to its full members.
func (k PKey) Full() bool { return k.Value&0x8000 != 0 }

// Partition is the number of the partition, without the bit for full members.
func (k PKey) Partition() uint16 { return k.Value &^ 0x8000 }

// Reaches reports whether packets pass between the two: both are in one partition, and one of them is a full member.
func (k PKey) Reaches(other PKey) bool {
	return k.Partition() == other.Partition() && (k.Full() || other.Full())
}

// String is the key as it is always written, in hexadecimal.
func (k PKey) String() string {
	if k.Full() {
		return fmt.Sprintf("%04x", k.Value)
	}
	return fmt.Sprintf("%04x (limited member)", k.Value)
}

// Net is the network device of a port.
type Net struct {
	Name    string
	State   string // up, down, unknown …
	MTU     int    // in bytes; 0: unknown
	Members []string
	Addrs   []netip.Prefix
}

// GPU is one graphics or compute card.
type GPU struct {
	Name   string // its model where a driver says it, else vendor and PCI id
	Driver string // nvidia, amdgpu, vfio-pci; empty: none
	Node   int    // NUMA node; negative: unknown
	Slot   Slot
	// CUDA is nil where CUDA was not asked or does not list the GPU; then CUDAWhy says why.
	CUDA    *CUDA
	CUDAWhy string
}

// CUDA is what only the driver's library knows of a GPU.
type CUDA struct {
	Number int      // by which programs name it, in this environment
	Memory int64    // bytes
	Peers  []string // PCI addresses of the GPUs that copy to and from it directly, by NVLink or PCIe
	DMABuf bool     // RDMA devices can reach its memory by dma-buf
}

// Caps is what a device can do, and how much of it, as libibverbs says.
type Caps struct {
	Tags       TagMatching
	ODP        ODP
	Atomics    string // none, HCA (atomic among operations of this device) or global (with the CPU's too)
	MaxInline  int    // bytes that travel inside of a send request, as a trial queue pair got them; negative: unknown
	MaxSGE     int    // pieces that a send or receive is gathered from
	MaxSGERead int    // likewise of a READ
	MaxReads   int    // READs and atomics that a queue pair may have under way
	MaxServed  int    // READs and atomics of its peer that a queue pair serves at once
	MaxMessage uint64 // bytes; 0: unknown
}

// TagMatching is what the device's own tag matching takes; all 0 where it has none.
type TagMatching struct {
	RC            bool // for reliable connections, the kind that is used here
	MaxTags       int  // receives that the device holds
	MaxOps        int  // changes of its list that may be under way
	MaxSGE        int  // pieces of a receive's buffer
	MaxRendezvous int  // bytes of header that it reads of a rendezvous
}

// ODP is on-demand paging: memory that is registered without being pinned.
type ODP struct {
	Supported bool
	Implicit  bool     // one registration for the whole address space
	RC        []string // what works on such memory over reliable connections: send, recv, write, read, atomic, srq
}

// Addrs asks the kernel for the addresses of a network device of this machine.
func Addrs(name string) []netip.Prefix {
	itf, err := net.InterfaceByName(name)
	if err != nil {
		return nil
	}
	all, err := itf.Addrs()
	if err != nil {
		return nil
	}
	var found []netip.Prefix
	for _, a := range all {
		if p, err := netip.ParsePrefix(a.String()); err == nil {
			found = append(found, p)
		}
	}
	return found
}
