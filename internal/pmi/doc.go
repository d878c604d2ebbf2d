// Package pmi is the wire-up of a job: the PMI-1 text protocol, both ends.
//
// [Client] is a rank's end. Package internal/join calls [Join], which finds the launcher in the environment (gorun,
// mpiexec.hydra, srun --mpi=pmi2, any other that speaks PMI-1). The client then puts and gets small values and fences.
// [Server] is the launcher's end for one job.
//
// A rank inherits its connection, or dials PMI_PORT. A rank of gorun that dials and its launcher first prove to each
// other that they know the job's key (dialled.go). A connection whose other end no longer answers ends within a time
// limit (watch_linux.go).
//
// The servers of a job may form a tree: each serves ranks, or servers below it, and asks its parent for values that it
// does not have (above.go, below.go).
//
// A line is at most 1022 bytes and an LF, one command per write. gorun sends its own ranks lines of up to 16 KiB, with
// values that they will want. The parser finds fields by key and never by position, and a missing rc means 0. Binary
// values travel as base64url; long ones are split over several keys. Data from a socket is hostile until it has been
// parsed.
//
//	Owns:     the control socket of a rank, the job's key-value space, the job's key and secret
//	May call: internal/auth, internal/settings, golang.org/x/sys
//	Never:    open a data connection, start or stop a process, log, print the key or the secret
package pmi
