package accel

import (
	"fmt"
	"sync/atomic"
)

var inUse atomic.Pointer[Driver]

// Use makes d the driver of this process: an init function of a driver's package calls it, or a test.
func Use(d Driver) { inUse.Store(&d) }

// InUse returns the driver of this process.
func InUse() (Driver, error) {
	if d := inUse.Load(); d != nil {
		return *d, nil
	}
	return nil, fmt.Errorf("%w: this program was built without cgo; build it on Linux with a C compiler (Debian: apt-get "+
		"install gcc libc6-dev) by CGO_ENABLED=1 go build", ErrNoDriver)
}
