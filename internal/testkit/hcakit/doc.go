// Package hcakit gives tests the software HCA of softdevices/softhca: package softlib builds the library, and this one
// says where a program finds it in place of the real libibverbs.
//
//	Owns:     nothing: softlib has the built library
//	May call: internal/testkit/softlib, internal/testkit/proc
//	Never:    be imported by anything but tests
package hcakit
