package multi

import "github.com/gorun-mpi/mpi/transport"

// Which devices a Poll polls. A poll of shared memory costs two loads, one of sockets a system call, so a rank that
// waits for the first must not pay for the second each time:
//
//   - each Poll polls the first device, which is the preferred one and so the cheapest;
//   - another device that has returned nothing for skipAfter polls is polled in one of skipPeriod, as long as any of
//     them returns something;
//   - when none has for skipAfter polls, or the rank has slept, each Poll polls all devices again.
//
// A device that fills the slice goes last next time, so that a flood by one device does not starve the others.
const (
	skipAfter  = 64
	skipPeriod = 16
)

// source is a device that is polled.
type source struct {
	dev     transport.Device
	first   bool // preferred: never skipped
	idle    int  // polls, skipped ones too, since it returned something
	skipped int  // polls since it was polled
}

// Poll is transport.Device's. A device's payloads stay valid until it is polled again, which is in the next Poll at the
// earliest.
func (d *Device) Poll(pkts []transport.Packet) int {
	n := 0
	for i := 0; i < len(d.order) && n < len(pkts); i++ {
		s := d.order[i]
		if s.idle++; s.idle > skipAfter && !s.first && d.idle < skipAfter && s.skipped < skipPeriod-1 {
			s.skipped++
			continue
		}
		s.skipped = 0
		got := s.dev.Poll(pkts[n:])
		if got == 0 {
			continue
		}
		s.idle = 0
		full := n+got == len(pkts)
		n += d.dropGone(pkts[n : n+got])
		if full {
			copy(d.order[i:], d.order[i+1:])
			d.order[len(d.order)-1] = s
			break
		}
	}
	if n > 0 {
		d.idle = 0
	} else {
		d.idle++
	}
	return n
}

// short is transport.Facts's Short, by that of the first device. Each call counts as a Poll that has skipped the other
// devices. Where one of them has its turn, all is left to Poll, and so it is from the first Down on: dropGone is needed
// then.
func (d *Device) short(first func() (transport.Short, []byte, transport.Found)) (m transport.Short, payload []byte,
	found transport.Found) {
	if len(d.gone) != 0 {
		return m, nil, transport.FoundOther
	}
	for i := range d.sources {
		if s := &d.sources[i]; !s.first && (s.idle < skipAfter || d.idle >= skipAfter || s.skipped >= skipPeriod-1) {
			return m, nil, transport.FoundOther
		}
	}
	if m, payload, found = first(); found != transport.FoundShort {
		return m, nil, transport.FoundOther
	}
	d.idle = 0
	for i := range d.sources {
		d.sources[i].idle++
		d.sources[i].skipped++
	}
	return m, payload, found
}

// dropGone removes what comes of peers that have been reported gone, but for what an operation needs, and returns how
// many packets are left.
func (d *Device) dropGone(pkts []transport.Packet) int {
	n := 0
	for i := range pkts {
		p := &pkts[i]
		if p.Event != transport.Down && len(d.gone) == 0 {
			n++
			continue
		}
		if d.gone[p.Peer] && !ofOperation(p.Event) {
			continue
		}
		if p.Event == transport.Down {
			d.gone[p.Peer] = true
		}
		if n != i {
			pkts[n] = *p
		}
		n++
	}
	return n
}

// ofOperation reports whether the engine needs the event also of a peer that is gone. Such an event is about an
// operation that has begun, or about a message of which the device waits to hear that it has been dealt with
// (Offload.Seen).
func ofOperation(e transport.Event) bool {
	switch e {
	case transport.Unmatched, transport.RMADone, transport.OffloadMatched, transport.OffloadDone, transport.OffloadBack,
		transport.TaggedDone, transport.TaggedGivenUp:
		return true
	}
	return false
}
