package multi

import "github.com/gorun-mpi/mpi/transport"

// Whose turn it is. A poll of shared memory costs two loads, one of sockets a system call, so whoever waits for one
// must not pay for the other each time:
//
//   - the first device, which is the preferred one and so the cheapest, is asked in each poll;
//   - another that has given nothing for restAfter polls is asked in one of oneIn, as long as somebody gives something;
//   - when nobody has for restAfter polls, or the rank has slept, all are asked in each poll again.
//
// Whoever fills the slice goes last next time, so that a flood by one device does not keep the others waiting.
const (
	restAfter = 64
	oneIn     = 16
)

// source is a device that is polled.
type source struct {
	dev     transport.Device
	first   bool // preferred: never skipped
	idle    int  // polls, skipped ones too, since it gave something
	skipped int  // polls since it was asked
}

// Poll is transport.Device's. A device's payloads stay as they are until it is asked again, which is in this Poll's
// successor at the earliest.
func (d *Device) Poll(pkts []transport.Packet) int {
	n := 0
	for i := 0; i < len(d.order) && n < len(pkts); i++ {
		s := d.order[i]
		if s.idle++; s.idle > restAfter && !s.first && d.quiet < restAfter && s.skipped < oneIn-1 {
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
		n += d.admit(pkts[n : n+got])
		if full {
			copy(d.order[i:], d.order[i+1:])
			d.order[len(d.order)-1] = s
			break
		}
	}
	if n > 0 {
		d.quiet = 0
	} else {
		d.quiet++
	}
	return n
}

// admit leaves out what comes from peers that have been reported gone, but for the end of reads, and returns how many
// packets are left.
func (d *Device) admit(pkts []transport.Packet) int {
	n := 0
	for i := range pkts {
		p := &pkts[i]
		if p.Event != transport.Down && len(d.gone) == 0 {
			n++
			continue
		}
		if p.Event != transport.RMADone && d.gone[p.Peer] {
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
