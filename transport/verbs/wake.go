//go:build verbs && linux && cgo

package verbs

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gorun-mpi/mpi/transport"
)

// wakeState is how this rank is woken for what no completion shows. Any goroutine may use it.
type wakeState struct {
	active    atomic.Uint64                     // Device.polls, for wakeCheck
	armed     atomic.Bool                       // since Arm, until Disarm
	wake      atomic.Pointer[func(thread bool)] // ends a sleep of this rank; nil: it cannot sleep yet
	wakeTimer *time.Timer
	checking  sync.Mutex // held by wakeCheck, and by Close when it sets closed: the device is there as long
	checked   uint64     // active when wakeCheck looked last
}

func (w *wakeState) notifyBy(wake func(thread bool)) { w.wake.Store(&wake) }

// Arm is transport.Device's. Urgent packets are sent solicited, and nothing else is: so the device itself knows what a
// computing rank is to be woken for. It is also woken when what is not urgent leaves few receive buffers.
func (d *Device) Arm(level transport.Level) bool {
	if d.closed.Load() || d.has() {
		return false
	}
	if err := d.hca.notify(level == transport.Urgent); err != nil {
		// The device is gone, which a queue that lies in our own memory does not say. When its sessions have ended there is
		// nothing to hear from it, and this rank may sleep.
		if d.failAll(fmt.Errorf("asking for the next completion: %w", err)); d.has() {
			return false
		}
	}
	n, err := d.hca.turn(nil, d.wcs[:])
	d.stash = d.wcs[:n]
	if n > 0 || err != nil || d.notices.Load() { // a notice from now on ends the sleep
		return false
	}
	if level == transport.Urgent {
		if err := d.recv.watch(); err != nil {
			d.opt.Log("the device does not say when receive buffers run short: while this rank computes, messages that"+
				" nothing waits for may hold up those of others", "device", d.at.device, "error", err)
		}
	}
	d.armed.Store(true)
	return true
}

// has: there is something for Poll that the completion queue does not show.
func (d *Device) has() bool { return d.notices.Load() || d.some() }

// Disarm is transport.Device's.
func (d *Device) Disarm() { d.armed.Store(false) }

// wakeCheck makes a rank poll that has not for a while: if it is not armed nothing wakes it, and peers may wait for it
// all the same, to take a message back for example. A completion queue cannot be looked at from here. If it is armed,
// the channel says whether something has come that has woken no sleeper.
func (d *Device) wakeCheck() {
	d.checking.Lock()
	defer d.checking.Unlock()
	if d.closed.Load() {
		return
	}
	polls := d.active.Load()
	if polls == d.checked && len(d.table.Load().all) > 0 && (!d.armed.Load() || readable(d.hca.channel())) {
		d.wakeSleepers()
	}
	d.checked = polls
	d.wakeTimer.Reset(wakeCheckEvery)
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
