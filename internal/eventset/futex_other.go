//go:build !linux

package eventset

import "sync/atomic"

// No device of these systems has a word.

func sleepWhile(*atomic.Uint32, uint32) {}

func wakeSleepers(*atomic.Uint32) {}
