package topology

import "slices"

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
	d.Caps, d.CapsWhy, d.Library = t.Caps, t.CapsWhy, t.Library
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
