package eventset

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// bellPatience is how long a bell that is expected to ring stays silent. Then it rings by itself: a device that has
// failed rings no more.
const bellPatience = 100 * time.Millisecond

// Bell is an eventfd into which what is no device of the seam writes when it has something, and a goroutine that hears
// it.
type Bell struct {
	file *os.File
	fd   int
	rung chan struct{} // capacity 1: it has been heard

	mu       sync.Mutex
	expected uint64    // rings that have not been heard
	by       time.Time // it rings by itself then; zero: it does not
	closed   bool
	over     chan struct{} // closed by the goroutine, which closes the file
}

// NewBell makes a bell. ring is called, by the goroutine, some time after each write.
func NewBell(ring func()) (*Bell, error) {
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("eventset: eventfd: %w", err)
	}
	b := &Bell{file: os.NewFile(uintptr(fd), "bell"), fd: fd, rung: make(chan struct{}, 1), over: make(chan struct{})}
	go func() {
		defer close(b.over)
		defer b.file.Close()
		var count [8]byte
		for {
			_, err := b.file.Read(count[:])
			n := binary.NativeEndian.Uint64(count[:])
			if late := errors.Is(err, os.ErrDeadlineExceeded); late {
				n = 0
			} else if err != nil {
				return
			}
			if b.heard(n) {
				return
			}
			ring()
			select {
			case b.rung <- struct{}{}:
			default:
			}
		}
	}()
	return b, nil
}

// heard notes rings. It reports whether the bell is closed, and none will come any more.
func (b *Bell) heard(n uint64) (over bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.expected -= min(n, b.expected)
	b.by = time.Time{}
	b.hasPatience()
	return b.closed && b.expected == 0
}

// hasPatience begins to wait for a ring, if there is reason to. The lock is held.
func (b *Bell) hasPatience() {
	limit := time.Time{}
	if b.expected > 0 && !b.closed {
		limit = time.Now().Add(bellPatience)
	}
	if !b.by.IsZero() && !b.closed && (limit.IsZero() || b.by.Before(limit)) {
		limit = b.by
	}
	b.file.SetReadDeadline(limit)
}

// FD is what is written to.
func (b *Bell) FD() int { return b.fd }

// Expect says that a 1 will be written into FD, by Ring or by a driver.
func (b *Bell) Expect() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.expected++; b.expected == 1 {
		b.hasPatience()
	}
}

// Within has the bell ring by itself after d, unless it rings before. It is for what only can be asked for.
func (b *Bell) Within(d time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.by = time.Now().Add(d)
	b.hasPatience()
}

// Ring rings the bell, which is expected.
func (b *Bell) Ring() {
	unix.Write(b.fd, binary.NativeEndian.AppendUint64(nil, 1)) // a bell that does not take it rings already
}

// Await returns when it has rung, perhaps before the call. One goroutine at a time calls it, and not after Close.
func (b *Bell) Await() { <-b.rung }

// Close ends the goroutine when it has heard all that is expected: FD is no other file's number until then. What is
// expected and never comes, since a device has failed, leaves the descriptor and the goroutine.
func (b *Bell) Close() {
	b.mu.Lock()
	b.closed = true
	b.hasPatience()
	idle := b.expected == 0
	b.mu.Unlock()
	if idle {
		b.Ring() // the goroutine finds nothing more to expect
		<-b.over
	}
}
