// Package meminfo says how much memory this process may still have, so that a request for more is an error: the kernel
// kills processes for memory that it has promised and has not, and Go ends a program whose allocation fails.
//
//	Owns:     reading the host's and the cgroups' memory
//	May call: the standard library
//	Never:    keep memory
package meminfo
