// Package proc is the process kit of the tests: the test binary itself in a role, as the other process of a test
// (RunRole, Run, Start); programs of this module, built once per test binary (Build, Gorun), and programs of others,
// whose absence must be earned (RequireProgram); watchdogs that make a hang or a lost wake-up a failure; and what a
// test does to its own process (ForbidReadv, ForbidWritev, Threads).
//
//	Owns:     the folder of built programs of this test binary, the processes of Start; the rules for skipping
//	May call: the go command, the kernel, this test binary
//	Never:    be imported by anything but tests and what only tests import
package proc
