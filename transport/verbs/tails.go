//go:build verbs && linux && cgo

package verbs

import (
	"cmp"
	"fmt"
	"sync/atomic"
	"time"
)

// tailWatch is what the goroutine of watchTails shares with the caller of Poll.
type tailWatch struct {
	owing  atomic.Bool // the device has, or may have, requests: what Arm or a later request has found
	lookAt atomic.Bool // a look is due
}

// watchTails has the caller of Poll look after requests of which nothing is heard.
func (d *Device) watchTails() {
	tick := time.NewTicker(cmp.Or(d.opt.tails, tailEvery))
	defer tick.Stop()
	for {
		select {
		case <-d.ctx.Done():
			return
		case <-tick.C:
		}
		if d.armed.Load() && !d.tails.owing.Load() {
			continue
		}
		d.tails.lookAt.Store(true)
		d.tellNotice()
	}
}

// lookAfterTails has each session send one more packet if the device has completed nothing for two looks. A receiver
// asks for the packets that it misses when it gets a later one, so what is lost is sent again now, and not after the
// device's timeout. The device serves a queue pair in order: the packet does no harm where nothing is lost. It may be
// lost too: others follow after 4, 8, 16 looks and so on.
func (d *Device) lookAfterTails() {
	if d.inFlight == 0 {
		return
	}
	for _, s := range d.table.Load().all {
		switch {
		case s.failed || s.next == s.done:
			s.silent = 0
		case s.done != s.doneThen:
			s.doneThen, s.silent = s.done, 0
		default:
			if s.silent++; s.silent > 1 && s.silent&(s.silent-1) == 0 {
				s.postEmpty()
			}
		}
	}
}

// statusRetries is IBV_WC_RETRY_EXC_ERR.
const statusRetries = 12

// noAnswer is why a device has given up sending again, as far as this rank knows.
func (d *Device) noAnswer(err error) error {
	if d.portDown.Load() {
		return fmt.Errorf("%w: port %d of %s is down: check its cable and its switch (rdma link shows its state)", err,
			d.at.number, d.at.device)
	}
	return fmt.Errorf("%w: the peer's adapter has answered nothing for %v (GORUN_PEER_TIMEOUT): check its port and the path",
		err, devicePatience(ackTimeoutFor(d.opt.patience)).Round(time.Second/10))
}
