// Package sizes reads a number of bytes as users write it: in settings, in flags and on the command lines of
// benchmarks.
//
//	Owns:     the syntax of a size
//	May call: github.com/docker/go-units
//	Never:    know whose size it is
package sizes
