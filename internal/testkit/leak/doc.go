// Package leak checks that a test or a package's tests leave no goroutine and no descriptor.
//
//	Owns:     nothing: it counts what this process has
//	May call: the runtime, /dev/fd
//	Never:    be imported by anything but tests and what only tests import
package leak
