// Package cpuset reports how many CPUs this process may use, and how they lie.
//
//	Owns:     reading the affinity mask, the cgroup quota and the kernel's description of the CPUs
//	May call: the standard library, golang.org/x/sys
//	Never:    change an affinity, cache, decide which rank runs where
package cpuset
