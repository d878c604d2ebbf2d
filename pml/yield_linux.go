package pml

import "golang.org/x/sys/unix"

// yieldProcessor lets other processes run, if any wants to.
func yieldProcessor() { unix.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0) }
