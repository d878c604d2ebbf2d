// Package testenv is what tests of several packages need from the machine: programs of this module, built once per
// test binary, and programs of others, whose absence must be earned; and a dog that
// wakes sleepers whom nobody else wakes any more.
//
//	Owns:     the folder of built programs of this test binary; the rules for skipping
//	May call: the go command, the kernel (ForbidReadv)
//	Never:    be imported by anything but tests and what only tests import
package testenv
