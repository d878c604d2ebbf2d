// Package testenv is what tests of several packages need from the machine: programs of this module, built once per
// test binary, and programs of others, whose absence must be earned; the test binary itself in a role, as the other
// process of a test (Become, Run, Start); the check that nothing is left (Held); and a dog that wakes sleepers whom
// nobody else wakes any more, and a watchdog for hangs.
//
//	Owns:     the folder of built programs of this test binary, the processes of Start; the rules for skipping
//	May call: the go command, the kernel (ForbidReadv), this test binary
//	Never:    be imported by anything but tests and what only tests import
package testenv
