//go:build !linux

package procs

// IsStopped reports whether a process is known to be stopped.
func IsStopped(int) bool { return false }
