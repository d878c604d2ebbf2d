//go:build !linux

package main

import "syscall"

func adoptOrphans() {}

func family() map[int]bool { return nil }

// endFamily kills what is left of a run, as far as it stayed in the launcher's process group.
func endFamily(group int, _ map[int]bool) {
	_ = syscall.Kill(-group, syscall.SIGKILL)
}
