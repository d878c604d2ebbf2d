//go:build !linux && !darwin && !freebsd

package doze

import (
	"errors"
	"fmt"
	"runtime"
)

// Place cannot be made on this system; see New.
type Place struct{}

// New says that this system has neither epoll nor kqueue.
func New() (*Place, error) {
	return nil, fmt.Errorf("doze: sleeping until a descriptor is readable needs epoll or kqueue, and this is %s: %w", runtime.GOOS, errors.ErrUnsupported)
}

// Add is never called.
func (p *Place) Add(int) error { return errors.ErrUnsupported }

// AddHeld is never called.
func (p *Place) AddHeld(int) error { return errors.ErrUnsupported }

// AddBell is never called.
func (p *Place) AddBell(int) error { return errors.ErrUnsupported }

// Remove is never called.
func (p *Place) Remove(int) {}

// Ready is never called.
func (p *Place) Ready() bool { return false }

// Arm is never called.
func (p *Place) Arm(bool) {}

// Disarm is never called.
func (p *Place) Disarm() {}

// Park is never called.
func (p *Place) Park(bool) {}

// Interrupt is never called.
func (p *Place) Interrupt() {}

// Close is never called.
func (p *Place) Close() error { return nil }
