package procs

import "syscall"

// systemForwarded are the forwarded signals that only this system has.
var systemForwarded = []syscall.Signal{syscall.SIGPWR}
