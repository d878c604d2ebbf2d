package eventset

import (
	"encoding/binary"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Bell is an eventfd into which what is no device of the seam writes when it has something, and a goroutine that hears
// it.
type Bell struct {
	file *os.File
	fd   int
	rung chan struct{} // capacity 1: it has been heard
	over chan struct{}
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
		var count [8]byte
		for {
			if _, err := b.file.Read(count[:]); err != nil {
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

// FD is what is written to.
func (b *Bell) FD() int { return b.fd }

// Ring rings the bell.
func (b *Bell) Ring() {
	unix.Write(b.fd, binary.NativeEndian.AppendUint64(nil, 1)) // a bell that does not take it rings already
}

// Await returns when it has rung, perhaps before the call. One goroutine at a time calls it, and not after Close.
func (b *Bell) Await() { <-b.rung }

// Close ends the goroutine. Nobody writes any more.
func (b *Bell) Close() {
	b.file.Close()
	<-b.over
}
