// Package netns makes hosts on this machine for tests, breaks them, and runs jobs on them. A host is a set of
// namespaces (scripts/hosts has the picture). Hosts are numbered from 1. A switch joins them, and a server on the
// switch stays reachable whichever cable is pulled.
//
//	Owns:     one set of hosts: the process that holds it, the processes on the hosts
//	May call: scripts/hosts, the kernel, internal/pmi (the wire-up of jobs), internal/place, internal/cpuset,
//	          internal/testkit/vswitch, internal/testkit/proc
//	Never:    touch the machine's own network; be imported by anything but tests and their programs
package netns
