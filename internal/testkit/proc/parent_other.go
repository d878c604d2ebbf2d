//go:build !linux

package proc

import "syscall"

// endsWithParent: only Linux can see to that.
func endsWithParent() *syscall.SysProcAttr { return nil }
