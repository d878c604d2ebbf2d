//go:build verbs && linux && cgo

package verbs

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"os"

	"github.com/gorun-mpi/mpi/internal/topology"
)

// port is the one that a device uses. What moveTo changes is guarded by Device.mu once the device is open.
type port struct {
	device    string
	number    int
	layer     uint8 // enum of the link layer
	lid       uint16
	mtu       uint8 // enum ibv_mtu
	maxLength int   // of one message, in bytes
	gid       [16]byte
	gidIndex  int
	global    bool // each packet carries the GID: over Ethernet, and where the port requires it
	net       string
	rate      int  // Mb/s; 0: unknown
	hosted    bool // see transport.Caps: soft-RoCE, the software HCA
	pkey      topology.PKey
	why       string // the GID was chosen
	caps      limits
	tags      tagLimits
}

// tagLimits are those of the device's own tag matching; all 0: it has none for this kind of connection.
type tagLimits struct{ tags, ops, header int }

// limits are what a device takes, as far as it matters here.
type limits struct {
	maxEntries, maxReceives, maxRequests int
	reads, serves                        int // READs under way: its own, and those of a peer
	atomics                              bool
	coherent                             bool // atomics are so with respect to the CPU too
}

const (
	layerInfiniBand = 1
	layerEthernet   = 2
	stateActive     = 4

	// readsMost bounds the READs that a queue pair has under way: each takes memory of the device.
	readsMost = 16
	// gidsMost bounds the look through a table that has 1,024 entries where three are in use.
	gidsMost = 256
)

// Query returns what libibverbs knows of its devices. GORUN_VERBS_LIB names another library.
func Query() ([]topology.Device, error) {
	if err := load(os.Getenv("GORUN_VERBS_LIB")); err != nil {
		return nil, fmt.Errorf("opening libibverbs: %w", err)
	}
	names, err := deviceNames()
	if err != nil {
		return nil, err
	}
	var all []topology.Device
	for _, name := range names {
		all = append(all, queryOne(name))
	}
	return all, nil
}

func queryOne(name string) topology.Device {
	d := topology.Device{Name: name, Node: -1, Library: libraryPath()}
	h, err := open(name, "/")
	if err != nil {
		d.CapsWhy = err.Error()
		return d
	}
	defer h.close()
	c, err := h.query()
	if err != nil {
		d.CapsWhy = err.Error()
		return d
	}
	describe(&d, h, &c)
	return d
}

func describe(d *topology.Device, h *hca, c *capabilities) {
	d.Firmware = goString(c.firmware[:])
	d.NodeGUID = guid(uint64(c.node_guid))
	caps := capsOf(c)
	for n := 1; n <= int(c.ports); n++ {
		p, longest, err := describePort(h, n)
		if err == nil {
			d.Ports = append(d.Ports, p)
			caps.MaxMessage = max(caps.MaxMessage, longest)
		}
	}
	caps.MaxInline = -1
	if err := h.serves(c); err != nil {
		d.Unfit = err.Error()
	} else if inline, err := h.try(1, 0); err != nil {
		d.Unfit = err.Error()
	} else {
		caps.MaxInline = inline
	}
	d.Caps = &caps
}

func capsOf(c *capabilities) topology.Caps {
	caps := topology.Caps{Atomics: atomicsName(uint32(c.atomic)), MaxSGE: int(c.max_sge), MaxSGERead: int(c.max_sge_rd),
		MaxReads: int(c.max_init_rd_atom), MaxServed: int(c.max_rd_atom)}
	caps.Tags = topology.TagMatching{RC: c.tm_flags&1 != 0, MaxTags: int(c.tm_tags), MaxOps: int(c.tm_ops),
		MaxSGE: int(c.tm_sge), MaxRendezvous: int(c.tm_rndv)}
	caps.ODP = topology.ODP{Supported: c.odp_general&1 != 0, Implicit: c.odp_general&2 != 0}
	for i, what := range []string{"send", "recv", "write", "read", "atomic", "srq"} {
		if c.odp_rc>>i&1 != 0 {
			caps.ODP.RC = append(caps.ODP.RC, what)
		}
	}
	return caps
}

func atomicsName(a uint32) string {
	switch a {
	case 0:
		return "none"
	case 1:
		return "HCA"
	}
	return "global"
}

func guid(g uint64) string {
	return fmt.Sprintf("%04x:%04x:%04x:%04x", g>>48, g>>32&0xffff, g>>16&0xffff, g&0xffff)
}

var (
	stateNames = []string{"NOP", "DOWN", "INIT", "ARMED", "ACTIVE", "ACTIVE_DEFER"}
	physNames  = []string{"", "Sleep", "Polling", "Disabled", "PortConfigurationTraining", "LinkUp",
		"LinkErrorRecovery", "PhyTest"}
	layerNames = []string{"", "InfiniBand", "Ethernet"}
	gidTypes   = []topology.GIDType{topology.TypeIB, topology.TypeV1, topology.TypeV2}
)

func nameOf(names []string, i uint8) string {
	if int(i) < len(names) {
		return names[i]
	}
	return ""
}

// mtuBytes is what an enum ibv_mtu means.
func mtuBytes(mtu uint8) int { return 128 << mtu }

func describePort(h *hca, number int) (p topology.Port, longest uint64, err error) {
	st, err := h.port(number)
	if err != nil {
		return p, 0, err
	}
	layer := uint8(st.link_layer)
	if layer == 0 {
		layer = layerInfiniBand // what the header says of devices that do not say
	}
	p = topology.Port{Number: number, State: nameOf(stateNames, uint8(st.state)),
		Phys: nameOf(physNames, uint8(st.phys_state)),
		Link: nameOf(layerNames, layer), LID: int(st.lid), MTU: mtuBytes(uint8(st.active_mtu))}
	for i := range min(int(st.gids), gidsMost) {
		if g, ok := gidAt(h, number, i, layer); ok {
			p.GIDs = append(p.GIDs, g)
		}
	}
	for i := range int(st.pkeys) {
		if k, ok := h.pkey(number, i); ok && k&0x7fff != 0 {
			p.PKeys = append(p.PKeys, topology.PKey{Index: i, Value: k})
		}
	}
	return p, uint64(st.max_msg), nil
}

// gidAt returns an entry that is in use.
func gidAt(h *hca, number, index int, layer uint8) (g topology.GID, ok bool) {
	e, ok := h.gid(number, index)
	raw := rawGID(&e)
	if !ok || raw == ([16]byte{}) || binary.BigEndian.Uint64(raw[8:]) == 0 {
		return g, false
	}
	g = topology.GID{Index: index, Addr: netip.AddrFrom16(raw)}
	switch {
	case e._type < 3:
		g.Type = gidTypes[e._type]
	case layer == layerInfiniBand:
		g.Type = topology.TypeIB
	}
	if e.ifindex != 0 {
		if itf, err := net.InterfaceByIndex(int(e.ifindex)); err == nil {
			g.Net = itf.Name
		}
	}
	if g.Type == topology.TypeUnknown { // libibverbs before rdma-core 32 does not say
		g.Type, g.Net = topology.GIDAttrs(h.root, h.name, number, index)
	}
	return g, true
}

func rawGID(e *gidEntry) (raw [16]byte) {
	for i, b := range e.raw {
		raw[i] = byte(b)
	}
	return raw
}
