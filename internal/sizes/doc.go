// Package sizes reads a number of bytes as users write it: in settings, in flags and on the command lines of
// benchmarks.
//
//	Owns:     the syntax of a size
//	May call: github.com/docker/go-units
//	Never:    knows what the size is of
package sizes
