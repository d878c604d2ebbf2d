package proc

import "syscall"

// endsWithParent has Linux kill the process when its parent is gone.
func endsWithParent() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
