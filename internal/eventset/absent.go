//go:build !linux && !darwin && !freebsd

package eventset

import (
	"errors"
	"fmt"
	"runtime"
)

// descriptors cannot be made on this system; see open.
type descriptors struct{}

func newDescriptors(*Set) *descriptors { return new(descriptors) }

// open says that this system has neither epoll nor kqueue.
func (d *descriptors) open() error {
	return fmt.Errorf("sleeping until a descriptor is readable needs epoll or kqueue, and this is %s: %w",
		runtime.GOOS, errors.ErrUnsupported)
}

func (d *descriptors) listen()   {}
func (d *descriptors) wait(bool) {}
func (d *descriptors) ring(bool) {}
func (d *descriptors) clear()    {}
func (d *descriptors) close()    {}
