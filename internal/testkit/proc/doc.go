// Package proc is the process kit of the tests. It runs the test binary itself in a role, as the other process of a
// test (RunRole, Run, Start). It builds programs of this module once per test binary (Build, Gorun), and skips a test
// only if a missing program may be missing (RequireProgram). Its watchdogs turn a hang or a lost wake-up into a
// failure. ForbidReadv, ForbidWritev and Threads change or inspect the test's own process. ShowCalls lets another one
// see the system calls of a process before they are made.
//
//	Owns:     the folder of built programs of this test binary, the processes of Start; the rules for skipping
//	May call: the go command, the kernel, this test binary
//	Never:    be imported by anything but tests and what only tests import
package proc
