//go:build verbs && linux && cgo

package verbs

import (
	"cmp"
	"time"
)

// Close is transport.Device's. It first lets the device deliver what was sent, unless the peer has no room.
func (d *Device) Close() error {
	if d.closed.Swap(true) {
		return nil
	}
	d.check.Stop()
	if d.control.tcp != nil {
		d.deliver(time.Now().Add(cmp.Or(d.opt.closing, closePatience)))
	}
	d.stop()
	if d.eventFile != nil {
		d.eventFile.SetReadDeadline(time.Now()) // ends its goroutine
	}
	if d.prover.file != nil {
		d.prover.file.SetReadDeadline(time.Now())
	}
	if d.control.set != nil {
		d.control.set.Interrupt()
	}
	d.wg.Wait()
	d.control.close()
	d.later.close()
	d.registered()
	d.mu.Lock()
	for _, s := range d.table.Load().all {
		s.destroy()
		d.dropProof(s)
	}
	d.mu.Unlock()
	d.releaseRMA()
	d.tags.deregister()
	d.devices.drop()
	d.regs.drop(d.hca)
	d.allocs.drop(d.hca)
	d.results.slab.drop(d.hca)
	d.prover.sink.drop(d.hca)
	d.send.drop(d.hca)
	d.recv.drop(d.hca)
	if d.hca != nil {
		d.hca.close()
	}
	return nil
}

// deliver waits until the device has delivered everything.
func (d *Device) deliver(until time.Time) {
	for d.inFlight > 0 && time.Now().Before(until) {
		for _, s := range d.table.Load().all {
			if !s.failed {
				s.confirm()
			}
		}
		if d.notices.Load() {
			d.takeNotices() // a peer that is gone gets nothing any more
		}
		took := d.take(pollMax)
		for i := range took {
			switch w := &took[i]; w.id & ownMask {
			case 0:
				d.sent(w)
			case ownBuffer:
				if w.status == 0 && d.recv.takeBack(uint32(w.id)) {
					d.recv.owed = append(d.recv.owed, uint32(w.id)) // the peers want to get rid of theirs too
				}
			}
		}
		if len(took) == 0 {
			time.Sleep(10 * time.Microsecond)
		}
	}
}
