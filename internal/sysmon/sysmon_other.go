//go:build !linux

package sysmon

// Batch does nothing: other systems have no such policy.
func Batch() error { return nil }
