//go:build !linux

package proc

import "syscall"

// endsWithParent does nothing: only Linux can kill a process whose parent is gone.
func endsWithParent() *syscall.SysProcAttr { return nil }
