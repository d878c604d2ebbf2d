// Package softlib builds the libraries of softdevices for tests, and has what the tests of all of them do.
//
//	Owns:     the built libraries, in bin for all test binaries
//	May call: internal/testkit/proc, the scripts that build them, so a C compiler
//	Never:    be imported by anything but tests and their kits
package softlib
