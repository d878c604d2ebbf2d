//go:build !linux

package launcher

import "syscall"

var systemForwarded []syscall.Signal
