//go:build verbs && linux && cgo

package verbs

import (
	"fmt"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/gorun-mpi/mpi/internal/eventset"
	"github.com/gorun-mpi/mpi/transport"
)

// wakeState is how this rank is woken for what no completion shows. Any goroutine may use it.
type wakeState struct {
	armed atomic.Bool                       // since Arm, until Disarm
	wake  atomic.Pointer[func(thread bool)] // ends a sleep of this rank; nil: it cannot sleep yet
	check eventset.Check                    // see mayWait

	solicited bool // armed shows solicited completions only; the caller of Arm's
}

func (w *wakeState) notifyBy(wake func(thread bool)) { w.wake.Store(&wake) }

// Arm implements transport.Device. Urgent packets are sent solicited, and nothing else is: so the device itself knows
// what a computing rank is to be woken for. It is also woken when what is not urgent leaves few receive buffers. The
// completions of this rank's own requests are never solicited: while RMADone or Room is to be told it is woken for all.
func (d *Device) Arm(level transport.Level) bool {
	if d.closed.Load() || d.has() {
		return false
	}
	d.solicited = level == transport.Urgent && d.usedRMA+d.refusals == 0
	if err := d.hca.notify(d.solicited); err != nil {
		// The device is gone, which a queue that lies in our own memory does not say. When its sessions have ended there is
		// nothing to hear from it, and this rank may sleep.
		if d.failAll(fmt.Errorf("asking for the next completion: %w", err)); d.has() {
			return false
		}
	}
	n, _, err := d.hca.turn(nil, d.wcs[:])
	if err != nil { // as above: if every poll fails, this rank sleeps when its sessions have ended
		d.failAll(pollError(err))
	}
	d.stash = d.wcs[:n]
	if d.has() { // a notice from now on ends the sleep
		return false
	}
	if level == transport.Urgent {
		if err := d.recv.watch(); err != nil {
			d.opt.Log("the device does not say when receive buffers run short: while this rank computes, messages that"+
				" nothing waits for may hold up those of others", "device", d.at.device, "error", err)
		}
	}
	d.tails.owing.Store(d.inFlight > 0)
	d.armed.Store(true)
	return true
}

// has reports whether there is something for Poll that the completion queue does not show.
func (d *Device) has() bool { return d.notices.Load() || d.some() }

// armAgain is called when from now on RMADone or Room is to be told. A rank that is armed for less wakes, and arms once
// more.
func (d *Device) armAgain() {
	if d.solicited && d.armed.Load() {
		d.solicited = false
		d.wakeSleepers()
	}
}

// Disarm is transport.Device's.
func (d *Device) Disarm() { d.armed.Store(false) }

// mayWait reports whether something may have come that has woken no sleeper. If the rank is not armed nothing wakes it,
// and a completion queue cannot be looked at from here. If it is armed, the channel says whether there is something.
func (d *Device) mayWait() bool {
	return len(d.table.Load().all) > 0 && (!d.armed.Load() || readable(d.hca.channel()))
}

func readable(fd int) bool {
	p := [1]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	n, _ := unix.Poll(p[:], 0)
	return n > 0
}

// wakeSleepers ends the sleep of this rank, for what the channel does not show.
func (w *wakeState) wakeSleepers() {
	if wake := w.wake.Load(); wake != nil {
		(*wake)(true)
		(*wake)(false)
	}
}
