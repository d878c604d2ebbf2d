package gpu

import (
	"errors"
	"runtime"
	"time"

	"github.com/gorun-mpi/mpi/accel"
)

// copying is a copy that has been started.
type copying struct {
	driver accel.Driver
	device int
	event  accel.Event
}

// startCopy starts a copy of n bytes between a device's memory and pinned memory.
func startCopy(d accel.Driver, device int, dst, src uint64, n int64) (copying, error) {
	ev, err := d.Copy(device, dst, src, n)
	return copying{d, device, ev}, err
}

const (
	looksYielding = 2000                  // a short copy ends within them
	nap           = 20 * time.Microsecond // between looks at a long copy
)

// wait returns when the copy has ended, and how.
func (c copying) wait() error {
	for looks := 0; ; looks++ {
		if done, err := c.driver.Done(c.device, c.event); done || err != nil {
			return err
		}
		if looks < looksYielding {
			runtime.Gosched()
		} else {
			time.Sleep(nap)
		}
	}
}

// waitAll waits for copies, which may touch the caller's memory until then, and joins their errors.
func waitAll(all ...copying) error {
	var failed []error
	for _, c := range all {
		if c.driver != nil {
			failed = append(failed, c.wait())
		}
	}
	return errors.Join(failed...)
}
