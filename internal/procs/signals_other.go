//go:build !linux

package procs

import "syscall"

var systemForwarded []syscall.Signal
