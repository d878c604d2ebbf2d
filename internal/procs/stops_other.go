//go:build !linux

package procs

import (
	"os"
	"syscall"
)

// WatchStops returns nil here: stops are watched on Linux only.
func WatchStops() (stops <-chan os.Signal, end func()) { return nil, func() {} }

// StoppedChildren does nothing here.
func StoppedChildren(func(pid int, by syscall.Signal)) {}
