// Package shm carries packets between processes of one host through memory that both map (Linux).
//
// Memory comes from memfd_create, so it has no name in a file system, and a killed process leaves nothing behind. A
// rank makes one memory with its inbox and, behind that, a ring (internal/ring) for each rank of its host. A sender
// opens its peer's memory by /proc/PID/fd at first use, and claims a ring (contact_linux.go). If it cannot, it makes a
// ring itself and hands that over with SCM_RIGHTS on an abstract-namespace socket (connect_linux.go). The doorbells of
// a process, or that connection, show its end. A receiver polls a few rings; the others are armed. Each receiver has an
// inbox page with the word that it sleeps on and the doorbell bitmap, in which senders mark armed rings, so a poll
// never scans all peers.
//
//	Owns:     rings, inbox, descriptors, the probe and use of process_vm_readv and _writev, memory of mpi.Alloc
//	May call: internal/auth, internal/board, internal/meminfo, internal/ring, internal/wire, transport, the kernel
//	Never:    know what a communicator is; match; name anything in a file system; use a peer's words unchecked
package shm
