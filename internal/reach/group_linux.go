package reach

import "syscall"

func ownGroup(bound bool) *syscall.SysProcAttr {
	attr := &syscall.SysProcAttr{Setpgid: true}
	if bound {
		attr.Pdeathsig = syscall.SIGKILL
	}
	return attr
}
