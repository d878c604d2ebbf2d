//go:build !linux

package eventset

import (
	"errors"
	"time"
)

// Bell needs an eventfd, which only Linux has.
type Bell struct{}

// NewBell says that there is none.
func NewBell(func()) (*Bell, error) { return nil, errors.New("eventset: this system has no eventfd") }

// FD is none.
func (b *Bell) FD() int { return -1 }

// Expect does nothing.
func (b *Bell) Expect() {}

// Within does nothing.
func (b *Bell) Within(time.Duration) {}

// Ring does nothing, and Await does not wait.
func (b *Bell) Ring() {}

// Await does nothing.
func (b *Bell) Await() {}

// Close does nothing.
func (b *Bell) Close() {}
