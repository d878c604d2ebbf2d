// Package hcakit gives tests the software HCA of softdevices/softhca: it builds the library, and says where a program
// finds it in place of the real libibverbs.
//
//	Owns:     the built library, in bin for all test binaries; the rules for skipping where it cannot be built
//	May call: internal/testkit/proc, scripts/softhca, so a C compiler
//	Never:    be imported by anything but tests
package hcakit
