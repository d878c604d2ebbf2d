package eventset

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Bell is an eventfd into which what is no device of the seam writes when it has something, and a goroutine that hears
// it.
type Bell struct {
	file *os.File
	fd   int
	over chan struct{}
}

// NewBell makes a bell. ring is called, by the goroutine, some time after each write.
func NewBell(ring func()) (*Bell, error) {
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("eventset: eventfd: %w", err)
	}
	b := &Bell{file: os.NewFile(uintptr(fd), "bell"), fd: fd, over: make(chan struct{})}
	go func() {
		defer close(b.over)
		var count [8]byte
		for {
			if _, err := b.file.Read(count[:]); err != nil {
				return
			}
			ring()
		}
	}()
	return b, nil
}

// FD is what is written to.
func (b *Bell) FD() int { return b.fd }

// Close ends the goroutine. Nobody writes any more.
func (b *Bell) Close() {
	b.file.Close()
	<-b.over
}
