//go:build !linux

package main

import "syscall"

func becomeSubreaper() {}

func descendants() map[int]bool { return nil }

// killDescendants kills what is left of a run, as far as it stayed in the launcher's process group.
func killDescendants(group int, _ map[int]bool) {
	_ = syscall.Kill(-group, syscall.SIGKILL)
}
