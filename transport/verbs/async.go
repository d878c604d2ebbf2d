//go:build verbs && linux && cgo

package verbs

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

var errClosed = errors.New("the device is closed")

// Events of a device that this rank must hear of; enum ibv_event_type.
const (
	eventCQError     = 0
	eventQPFatal     = 1
	eventQPRequest   = 2
	eventQPAccess    = 3
	eventDeviceFatal = 8
	eventPortActive  = 9
	eventPortError   = 10
	eventSRQError    = 14
	eventSRQLimit    = 15
)

// watchDevice starts the goroutine that takes the device's events: what it says apart from completions.
func (d *Device) watchDevice() error {
	fd, err := unix.FcntlInt(uintptr(d.hca.async()), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("a second descriptor for the device's events: %w", err)
	}
	unix.SetNonblock(fd, true)
	file := os.NewFile(uintptr(fd), "gorun-verbs-events")
	raw, err := file.SyscallConn()
	if err != nil {
		file.Close()
		return fmt.Errorf("waiting for the device's events: %w", err)
	}
	d.wg.Go(func() {
		defer file.Close()
		raw.Read(func(uintptr) bool {
			for {
				kind, qpn, ok := d.hca.event()
				if !ok {
					return d.ctx.Err() != nil
				}
				d.happened(kind, qpn)
			}
		})
	})
	d.eventFile = file
	return nil
}

// happened takes one event.
func (d *Device) happened(kind, qpn uint32) {
	d.mu.Lock()
	defer d.mu.Unlock()
	what := fmt.Errorf("the device %s: %s", d.at.device, eventText(kind))
	switch kind {
	case eventQPFatal, eventQPRequest, eventQPAccess:
		if s := d.table.Load().find(qpn); s != nil {
			d.abort(s, what, true)
		}
	case eventCQError, eventDeviceFatal, eventSRQError:
		d.dead.Store(true)
		d.opt.Log("the device has failed", "device", d.at.device, "event", eventText(kind))
		for _, s := range d.sessions {
			d.abort(s, what, true)
		}
		for _, s := range d.table.Load().all { // own.go's too
			d.abort(s, what, true)
		}
		d.notices.Store(true)
		d.wakeSleepers()
	case eventSRQLimit:
		d.recv.watched.Store(false)
		d.wakeSleepers()
	case eventPortError, eventPortActive:
		d.opt.Log("the port's state has changed", "device", d.at.device, "port", d.at.number, "event", eventText(kind))
	}
}
