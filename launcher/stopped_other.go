//go:build !linux

package launcher

import (
	"os"
	"syscall"
)

func watchStops() (stops <-chan os.Signal, end func()) { return nil, func() {} }

func stoppedChildren(func(pid int, by syscall.Signal)) {}
