// Package topology lists the RDMA devices and GPUs of a machine, how near each is to each, which GID of a port to use,
// whether GPUDirect can work between them, and which devices the user wants.
//
//	h := topology.Read(topology.Source{Root: "/", Addrs: topology.Addrs})
//	h.Merge(verbs.Query()) // where the program has verbs: adds what only libibverbs knows; MergeGPUs likewise for CUDA
//
// It serves people and the start of a job, and reads the kernel's files once. A missing, damaged or unreadable file
// gives the value unknown, and never an error.
//
//	Owns:     the shape of /sys as far as RDMA and GPUs go, the words for distances, what
//	          GPUDirect needs, the choice of a GID
//	May call: the standard library
//	Never:    open a device, call C, change anything, cache
package topology
