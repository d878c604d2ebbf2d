// Package topologytest has the /sys and /proc of some machines, for tests of its readers.
//
//	Owns:     the trees, as text, and making files of them
//	May call: the standard library
//	Never:    be imported by anything but tests
package topologytest
