// Package shm carries packets between processes of one host through memory
// that both map (Linux).
//
// Memory comes from memfd_create and is handed over with SCM_RIGHTS on an
// abstract-namespace socket, so nothing is ever named in a file system and a
// killed process leaves nothing behind. A sender makes one ring per peer at
// first use (internal/ring) and one connection, which stays open so that the
// end of a process is noticed. A receiver polls a few rings; the others are
// armed. Each receiver has an inbox page with the word that it sleeps on and the
// doorbell bitmap, in which senders mark armed rings, so that a poll never scans
// all peers.
//
//	Owns:     rings, inbox, descriptors, the probe and use of process_vm_readv, memory of mpi.Alloc
//	May call: internal/auth, internal/ring, internal/wire, transport, the kernel
//	Never:    know what a communicator is; match; name anything in a file system; trust a peer before its proof
package shm
