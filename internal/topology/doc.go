// Package topology says what RDMA devices and GPUs a machine has, how near each is to each, which GID of a port to use,
// and which devices the user wants.
//
//	h := topology.Read(topology.Source{Root: "/", Addrs: topology.Addrs})
//	h.Merge(verbs.Query()) // where the program has verbs: adds what only libibverbs knows
//
// All of it is for people and for the start of a job, read once from the kernel's files. What is missing, damaged or
// unreadable there is unknown here, and never an error.
//
//	Owns:     the shape of /sys as far as RDMA and GPUs go, the words for what is near what, the choice of a GID
//	May call: the standard library
//	Never:    opens a device, calls C, changes anything, caches
package topology
