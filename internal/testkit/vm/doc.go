// Package vm runs commands, mostly test binaries, in guests whose kernel has RDMA over an emulated network card: one
// guest, or two on one cable. scripts/guest describes the environment of a command, and its cost.
//
//	Owns:     the guests of a test, from their boot until its end; the rules for skipping such tests
//	May call: internal/testkit/proc, scripts/guest
//	Never:    run in a guest itself; be imported by anything but tests
package vm
