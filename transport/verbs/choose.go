//go:build verbs && linux && cgo

package verbs

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/gorun-mpi/mpi/internal/topology"
)

// candidate is a port that could be used.
type candidate struct {
	h   *hca
	at  port
	far int // of the device from the CPUs of this rank
}

// choose opens the port that suits this rank best. The log says why the others are not used. A device that the user has
// named must have a port that works.
func choose(o *Options) (*hca, port, error) {
	filter, err := topology.ParseFilter(o.Devices)
	if err != nil {
		return nil, port{}, fmt.Errorf("GORUN_VERBS_DEV: %w", err)
	}
	key, err := topology.ParsePKey(o.Partition)
	if err != nil {
		return nil, port{}, err
	}
	names, err := deviceNames()
	if err != nil {
		return nil, port{}, err
	}
	if len(names) == 0 {
		return nil, port{}, errors.New("there is no RDMA device (none in /sys/class/infiniband," +
			" or this container has no /dev/infiniband)")
	}
	s := search{Options: o, filter: filter, partition: key}
	defer s.close()
	for _, name := range names {
		if err := s.look(name); err != nil {
			s.skip(name, err)
		}
	}
	if err := s.named(); err != nil {
		return nil, port{}, err
	}
	for _, c := range order(s.found, o.LocalRank) {
		if _, err = c.h.try(c.at.number, c.at.pkey.Index); err == nil {
			s.taken = c.h
			return c.h, c.at, nil
		}
		s.skip(c.at.device, fmt.Errorf("port %d: %w", c.at.number, err))
	}
	return nil, port{}, fmt.Errorf("no port can be used: %s", s.reasons(topology.Filter{}))
}

// search is the state of choose.
type search struct {
	*Options
	filter    topology.Filter
	partition uint16
	open      []*hca
	taken     *hca // of open, what close leaves open
	found     []candidate
	skipped   []skipped
	twins     []twin
}

// twin is a port that is not used, because another port of its bond is.
type twin struct {
	device string
	number int
	of     string // the other port
}

// skipped is a device that is not used, or one of its ports.
type skipped struct {
	device string
	why    error
}

func (s *search) close() {
	for _, h := range s.open {
		if h != s.taken {
			h.close()
		}
	}
}

func (s *search) skip(device string, why error) {
	s.Debug("an RDMA device is not used", "device", device, "why", why)
	s.skipped = append(s.skipped, skipped{device, why})
}

// reasons says why the devices of a filter are not used.
func (s *search) reasons(of topology.Filter) string {
	var all []string
	for _, d := range s.skipped {
		if of.Names(d.device) {
			all = append(all, fmt.Sprintf("%s: %v", d.device, d.why))
		}
	}
	if len(all) == 0 {
		return "there is no such device (gorun info lists them)"
	}
	return strings.Join(all, "; ")
}

// look adds the ports of a device that can be used. The error says why the device cannot.
func (s *search) look(name string) error {
	h, err := open(name, s.Root)
	if err != nil {
		return err
	}
	s.open = append(s.open, h)
	c, err := h.query()
	if err != nil {
		return err
	}
	if err := h.serves(&c); err != nil {
		return err
	}
	far := distance(s.Root, name, s.Nodes)
	for n := 1; n <= int(c.ports); n++ {
		var at port
		err := errors.New("GORUN_VERBS_DEV leaves it out")
		if s.filter.Match(name, n) {
			at, err = h.usable(n, s.partition)
		}
		if other := s.bonded(&at); err == nil && other != "" {
			s.twins = append(s.twins, twin{name, n, other})
			err = fmt.Errorf("it is of the bond %s, as %s is", at.net, other)
		}
		if err != nil {
			s.skip(name, fmt.Errorf("port %d: %w", n, err))
			continue
		}
		at.setLimits(&c)
		s.found = append(s.found, candidate{h, at, far})
	}
	return nil
}

// bonded returns a port of the same network device, "" if there is none. The ports of a bond (LAG) send by either cable
// as the bond decides, so they count as one. Soft-RoCE over the network device of an adapter is no port of a bond.
func (s *search) bonded(at *port) string {
	for _, c := range s.found {
		if at.net != "" && c.at.net == at.net && c.at.hosted == at.hosted {
			return fmt.Sprintf("%s:%d", c.at.device, c.at.number)
		}
	}
	return ""
}

// named checks that there is a port for each element of GORUN_VERBS_DEV, and leaves out a port that fails its trial.
func (s *search) named() error {
	wanted := s.filter.Wanted()
	if len(wanted) == 0 {
		return nil
	}
	s.found = slices.DeleteFunc(s.found, func(c candidate) bool {
		_, err := c.h.try(c.at.number, c.at.pkey.Index)
		if err != nil {
			s.skip(c.at.device, fmt.Errorf("port %d: %w", c.at.number, err))
		}
		return err != nil
	})
	for _, w := range wanted {
		if slices.ContainsFunc(s.found, func(c candidate) bool { return w.Match(c.at.device, c.at.number) }) {
			continue
		}
		i := slices.IndexFunc(s.twins, func(t twin) bool { return w.Match(t.device, t.number) })
		if i < 0 {
			return fmt.Errorf("GORUN_VERBS_DEV names %v, which cannot be used: %s", w, s.reasons(w))
		}
		s.Log("GORUN_VERBS_DEV names two ports of a bond, which count as one", "used", s.twins[i].of,
			"not-used", fmt.Sprintf("%s:%d", s.twins[i].device, s.twins[i].number))
	}
	return nil
}

// order puts ports in the order in which a rank tries them. Only ports of one fabric share the ranks of a host, because
// ranks on different fabrics do not reach each other: the ports that are like the fastest in link layer, rate and
// InfiniBand subnet. Among fabrics of one rate InfiniBand is first, and then the lower subnet: hosts may list their
// devices in different orders. The nearest of them to the rank's CPUs come first, and equals take turns by the number
// of the rank on its host.
func order(all []candidate, local int) []candidate {
	if len(all) == 0 {
		return nil
	}
	best := slices.MaxFunc(all, func(a, b candidate) int {
		return cmp.Or(-compare(a.at.hosted, b.at.hosted), cmp.Compare(a.at.rate, b.at.rate),
			compare(a.at.layer == layerInfiniBand, b.at.layer == layerInfiniBand), -a.at.compareSubnet(&b.at))
	})
	slices.SortStableFunc(all, func(a, b candidate) int {
		return cmp.Or(-compare(a.at.like(&best.at), b.at.like(&best.at)), cmp.Compare(a.far, b.far))
	})
	n := 1
	for n < len(all) && all[n].far == all[0].far && all[n].at.like(&best.at) {
		n++
	}
	turn := max(local, 0) % n
	return slices.Concat(all[turn:n], all[:turn], all[n:])
}

// compare puts false before true.
func compare(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

// like reports whether two ports of a host seem to be of one fabric.
func (p *port) like(o *port) bool {
	return p.hosted == o.hosted && p.layer == o.layer && p.rate == o.rate &&
		(p.layer != layerInfiniBand || subnet(p.gid) == subnet(o.gid))
}

// compareSubnet orders InfiniBand ports by subnet.
func (p *port) compareSubnet(o *port) int {
	if p.layer != layerInfiniBand || o.layer != layerInfiniBand {
		return 0
	}
	a, b := subnet(p.gid), subnet(o.gid)
	return bytes.Compare(a[:], b[:])
}

// subnet is the prefix of a GID.
func subnet(gid [16]byte) [8]byte { return [8]byte(gid[:8]) }

// farthest is the distance of a device of which /sys does not say where it is.
const farthest = 1 << 10

// distance is how far a device is from the nearest of some NUMA nodes.
func distance(root, name string, nodes []int) int {
	node, far := topology.NodeOf(root, name), farthest
	if node < 0 {
		return far
	}
	for _, n := range nodes {
		far = min(far, topology.NodeDistance(root, n, node))
	}
	return far
}

// transports are the names of enum ibv_transport_type.
var transports = []string{"InfiniBand", "iWARP", "usNIC", "usNIC over UDP", "unspecified (EFA)"}

// serves reports why a device cannot serve this package, as far as it says so.
func (h *hca) serves(c *capabilities) error {
	switch {
	case c.transport == transportIWARP:
		return errors.New("it is an iWARP device, which connects by rdma_cm only")
	case c.transport != transportIB:
		name := "unknown"
		if c.transport >= 0 && int(c.transport) < len(transports) {
			name = transports[c.transport]
		}
		return fmt.Errorf("its transport is %s, and reliable connections need InfiniBand or RoCE", name)
	case c.max_srq == 0:
		return errors.New("it has no shared receive queues")
	}
	return nil
}

// try makes and ends what this package needs at least: queues, and a reliable connection that is not connected. It
// returns how many bytes inline a queue pair gets.
func (h *hca) try(number, pkey int) (inline int, err error) {
	defer h.unmake()
	if _, _, err := h.make(16, 16, minSlot, 0, 0); err != nil {
		return 0, err
	}
	qp, _, _, inline, err := h.makeQP(number, pkey, 0, 16, inlineMax)
	if err != nil {
		return 0, err
	}
	return inline, qp.destroy()
}

func (p *port) setLimits(c *capabilities) {
	if c.tm_flags&1 != 0 {
		p.tags = tagLimits{tags: int(c.tm_tags), ops: int(c.tm_ops), header: int(c.tm_rndv)}
	}
	p.caps = limits{maxEntries: int(c.max_cqe), maxReceives: int(c.max_srq_wr), maxRequests: int(c.max_qp_wr),
		reads:  min(readsMost, max(1, int(c.max_init_rd_atom))),
		serves: min(readsMost, max(1, int(c.max_rd_atom))), atomics: c.atomic != 0,
		coherent: c.atomic > 1}
}

// usable describes a port that is active.
func (h *hca) usable(number int, partition uint16) (port, error) {
	st, err := h.port(number)
	if err != nil {
		return port{}, err
	}
	if st.state != stateActive {
		return port{}, fmt.Errorf("its state is %s, not ACTIVE", nameOf(stateNames, uint8(st.state)))
	}
	d, _, err := describePort(h, number)
	if err != nil {
		return port{}, err
	}
	index, why := topology.ChooseGID(d)
	p := port{device: h.name, number: number, layer: uint8(st.link_layer), lid: uint16(st.lid),
		mtu: uint8(st.active_mtu), maxLength: int(st.max_msg), gidIndex: max(index, 0),
		hosted: topology.Virtual(h.root, h.name), why: why, rate: rate(uint8(st.width), uint8(st.speed))}
	if p.layer == 0 {
		p.layer = layerInfiniBand
	}
	if p.pkey, err = topology.ChoosePKey(d, partition); err != nil {
		return port{}, err
	}
	p.global = p.layer == layerEthernet || st.flags&portNeedsGRH != 0
	if index < 0 && p.global {
		return port{}, errors.New(why)
	}
	for _, g := range d.GIDs {
		if g.Index == index {
			p.net = g.Net
		}
	}
	if e, ok := h.gid(number, p.gidIndex); ok {
		p.gid = rawGID(&e)
	}
	if p.maxLength <= 0 {
		p.maxLength = 1 << 30
	}
	return p, nil
}

// portNeedsGRH is IBV_QPF_GRH_REQUIRED: packets of virtual functions, whose ports share a LID, carry the GID.
const portNeedsGRH = 1

// rate is that of a port in Mb/s. width and speed are bits, as the specification of InfiniBand has them.
func rate(width, speed uint8) int {
	lanes := map[uint8]int{1: 1, 2: 4, 4: 8, 8: 12, 16: 2}[width]
	return lanes * map[uint8]int{1: 2500, 2: 5000, 4: 10000, 8: 10000, 16: 14000, 32: 25000, 64: 50000, 128: 100000}[speed]
}
