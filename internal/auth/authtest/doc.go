// Package authtest checks that a listening side authenticates by package auth, with everything that promises.
//
//	Owns:     nothing
//	May call: internal/auth, internal/testkit/proc
//	Never:    be imported by anything but tests
package authtest
