package proc

import "syscall"

// endsWithParent: Linux kills a process whose parent is gone.
func endsWithParent() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
