// Package cpuset says how many CPUs this process may use, and how they lie.
//
// Owns: reading the affinity mask, the cgroup quota and the kernel's description of the CPUs.
// May call: the standard library, golang.org/x/sys.
// Never: changes an affinity, caches, decides which rank runs where.
package cpuset
