//go:build verbs && linux && cgo

package verbs

import "github.com/gorun-mpi/mpi/transport"

// ownLink is the way to this rank's own memory: a queue pair that is connected with itself. Of its session no peer and
// no control connection knows.
type ownLink struct {
	rma    *transport.RMA // nil: there is none
	failed bool           // it could not be made, which has been logged
}

// ownRMA is transport.Facts's.
func (d *Device) ownRMA() *transport.RMA {
	o := &d.own
	if o.rma != nil || o.failed || d.closed.Load() {
		return o.rma
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	s, err := d.makeSession(d.opt.Rank)
	if err == nil {
		r := d.here()
		r.qpn, r.psn = s.qpn, s.psn
		err = d.hca.connectQP(s.qp, d.at.number, d.at.gidIndex, d.at.global, &r, s.psn)
	}
	if err != nil {
		o.failed = true
		d.opt.Log("atomic operations go by messages: the device does not reach this rank's own memory", "error", err)
		return nil
	}
	s.state = stateOpen
	o.rma = newLink(s).caps.RMA
	return o.rma
}

// here is where a peer of this rank's port finds it, but for the numbers of a queue pair.
func (d *Device) here() remote {
	r := remote{gid: d.at.gid, lid: d.at.lid, mtu: d.at.mtu, rdAtom: uint8(min(d.at.caps.reads, d.at.caps.serves)),
		rdServe: uint8(d.at.caps.serves), timeout: ackTimeoutFor(d.opt.patience), retries: ackRetries,
		level: uint8(d.opt.ServiceLevel)}
	if d.at.layer == layerEthernet {
		r.class = uint8(d.opt.TrafficClass)
	}
	return r
}
