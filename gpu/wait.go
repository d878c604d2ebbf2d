package gpu

import (
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/gorun-mpi/mpi/accel"
)

// copying is a copy that has been started, or a mark on a stream of the program. Its zero value has ended.
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
	for looks := 0; c.driver != nil; looks++ {
		if done, err := c.driver.Done(c.device, c.event); done || err != nil {
			return err
		}
		pause(looks)
	}
	return nil
}

// pause is between a look and the next.
func pause(looks int) {
	if looks < looksYielding {
		runtime.Gosched()
	} else {
		time.Sleep(nap)
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

// streamMark is the place where the stream of a buffer was at the call: copies of the buffer are not started before the
// stream has come there. Its zero value is of a buffer that is ordered by no stream.
type streamMark struct {
	copying
	stream uint64
}

// markOf marks the stream of b. The mark must be waited for, or dropped.
func markOf(b accel.Buffer) (streamMark, error) {
	if !b.Ordered || b.Len == 0 {
		return streamMark{}, nil
	}
	ev, err := b.Driver.Mark(b.Memory.Device, b.Stream)
	m := streamMark{copying{b.Driver, b.Memory.Device, ev}, b.Stream}
	if err != nil {
		return streamMark{}, m.names(err)
	}
	return m, nil
}

// pass returns when the stream has come to the mark.
func (m *streamMark) pass() error { return m.ended(m.wait()) }

// passed reports whether the stream has come to the mark, and does not wait.
func (m *streamMark) passed() (bool, error) {
	if m.driver == nil {
		return true, nil
	}
	done, err := m.driver.Done(m.device, m.event)
	if !done && err == nil {
		return false, nil
	}
	return true, m.ended(err)
}

// ended notes that there is no mark any more.
func (m *streamMark) ended(err error) error {
	m.driver = nil
	return m.names(err)
}

// drop gives up the mark.
func (m *streamMark) drop() {
	if m.driver != nil {
		m.driver.Drop(m.device, m.event)
		m.driver = nil
	}
}

// names names the stream that On was given.
func (m *streamMark) names(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("waiting for the stream %#x of On: %w", m.stream, err)
}

// ready returns when b may be touched.
func ready(b accel.Buffer) error {
	m, err := markOf(b)
	if err != nil {
		return err
	}
	return m.pass()
}
