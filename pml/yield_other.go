//go:build !linux

package pml

import "runtime"

// yieldProcessor lets others run. Ranks are goroutines of one process here.
func yieldProcessor() { runtime.Gosched() }
