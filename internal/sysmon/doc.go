// Package sysmon keeps the monitor thread of Go's scheduler from taking the CPU of a rank that spins on it.
//
//	Owns:     which thread that is, how the kernel schedules it
//	May call: golang.org/x/sys
//	Never:    change another thread, decide which ranks spin
package sysmon
