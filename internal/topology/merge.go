package topology

import (
	"slices"
	"strings"
)

// Merge adds the devices that libibverbs lists; err says why they are not all. The kernel's files say what a device is,
// libibverbs what it can do. Where both have a value, the MTU is libibverbs' and all else the files'. A device that
// only libibverbs knows (one in software, without a driver) is added as it is.
func (h *Host) Merge(listed []Device, err error) {
	why := "libibverbs does not know it: is rdma-core's provider for it installed, and may you open " +
		"/dev/infiniband/uverbs*?"
	if err != nil {
		why = clean(err.Error())
	}
	for i := range h.Devices {
		h.Devices[i].CapsWhy = why
	}
	for _, t := range listed {
		i := slices.IndexFunc(h.Devices, func(d Device) bool { return d.Name == t.Name })
		if i < 0 {
			t.Virtual, t.Node = true, -1
			h.Devices = append(h.Devices, t)
			continue
		}
		h.Devices[i].add(t)
	}
	slices.SortStableFunc(h.Devices, func(a, b Device) int { return natural(a.Name, b.Name) })
}

func (d *Device) add(t Device) {
	d.Caps, d.CapsWhy, d.Library, d.Unfit = t.Caps, t.CapsWhy, t.Library, t.Unfit
	if d.Firmware == "" {
		d.Firmware = t.Firmware
	}
	if d.NodeGUID == "" {
		d.NodeGUID = t.NodeGUID
	}
	for _, p := range t.Ports {
		i := slices.IndexFunc(d.Ports, func(q Port) bool { return q.Number == p.Number })
		if i < 0 {
			d.Ports = append(d.Ports, p)
			continue
		}
		d.Ports[i].add(p)
	}
}

func (p *Port) add(t Port) {
	if t.MTU > 0 {
		p.MTU, p.MTUFrom = t.MTU, ""
	}
	for _, field := range []struct {
		to   *string
		from string
	}{{&p.State, t.State}, {&p.Phys, t.Phys}, {&p.Link, t.Link}, {&p.Rate, t.Rate}} {
		if *field.to == "" {
			*field.to = field.from
		}
	}
	if p.LID < 0 {
		p.LID = t.LID
	}
	if len(p.GIDs) == 0 {
		p.GIDs = t.GIDs
	}
	if len(p.PKeys) == 0 {
		p.PKeys = t.PKeys
	}
}

// MergeGPUs adds what CUDA says of the GPUs that it lists; err says why they are not all. A GPU that only CUDA knows
// (the kernel's files are hidden in a container) is added as it is.
func (h *Host) MergeGPUs(listed []GPU, err error) {
	why := "CUDA does not list it: is it left out of CUDA_VISIBLE_DEVICES, or its device file missing?"
	if err != nil {
		why = clean(err.Error())
	}
	for i := range h.GPUs {
		h.GPUs[i].CUDAWhy = why
	}
	for _, t := range listed {
		t.Name = clean(t.Name)
		i := h.gpuAt(t.Slot.Address())
		if i < 0 {
			h.GPUs = append(h.GPUs, t)
			continue
		}
		h.GPUs[i].CUDA, h.GPUs[i].CUDAWhy = t.CUDA, ""
		if t.Name != "" {
			h.GPUs[i].Name = t.Name
		}
	}
	for _, g := range h.GPUs {
		for k := range g.peers() { // as the files write addresses
			if i := h.gpuAt(g.CUDA.Peers[k]); i >= 0 {
				g.CUDA.Peers[k] = h.GPUs[i].Slot.Address()
			}
		}
	}
}

func (g GPU) peers() []string {
	if g.CUDA == nil {
		return nil
	}
	return g.CUDA.Peers
}

// gpuAt is the index of the GPU with a PCI address, or -1.
func (h *Host) gpuAt(address string) int {
	return slices.IndexFunc(h.GPUs, func(g GPU) bool { return sameAddress(g.Slot.Address(), address) })
}

// sameAddress reports whether two PCI addresses are the same. Some tools write the domain with eight digits, or capital
// letters.
func sameAddress(a, b string) bool {
	return strings.EqualFold(strings.TrimLeft(a, "0"), strings.TrimLeft(b, "0"))
}
