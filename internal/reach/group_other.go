//go:build !linux

package reach

import "syscall"

func ownGroup(bool) *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
