// Package topologytest has the /sys of some machines, for the tests of those who read it.
//
//	Owns:     the trees, as text, and making files of them
//	May call: the standard library
//	Never:    be imported by anything but tests
package topologytest
