//go:build !linux

package reach

import "syscall"

func ownGroup(syscall.Signal) *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
