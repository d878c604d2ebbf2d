// Package authtest checks that a listening side authenticates by package auth and keeps all its promises.
//
//	Owns:     nothing
//	May call: internal/auth, internal/testkit/proc
//	Never:    be imported by anything but tests
package authtest
