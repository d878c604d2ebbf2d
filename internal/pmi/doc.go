// Package pmi is the wire-up of a job: the PMI-1 text protocol, both ends.
//
// [Client] is a rank's end: package mpi calls [Join], which finds the launcher in the environment (gorun,
// mpiexec.hydra, srun --mpi=pmi2, any other that speaks PMI-1), and then puts and gets small values and fences.
// [Server] is the launcher's end for one job.
//
// A rank inherits its connection, or dials PMI_PORT. A rank of gorun that dials and its launcher prove to each other
// that they know the job's key before anything else is said (dialled.go). A connection whose other end does not answer
// any more is ended within a time (watch_linux.go).
//
// The servers of a job may be a tree: each serves ranks, or servers below it, and asks the one above for what it does
// not know (above.go, below.go).
//
// A line is at most 1022 bytes and an LF, one command per write; gorun sends its own ranks lines of up to 16 KiB, with
// values that they will want. Fields are found by key and never by position, and a missing rc means 0. Binary values
// travel as base64url; long ones are split over several keys. What a socket delivers is hostile until it has been
// parsed.
//
//	Owns:     the control socket of a rank, the job's key-value space, the job's key and secret
//	May call: internal/auth, internal/settings, golang.org/x/sys
//	Never:    opens a data connection, starts or stops a process, logs, prints the key or the secret
package pmi
