// Package rank0 is the wire-up of a job whose launcher offers none: rank 0 serves PMI-1 to all ranks, itself included.
//
// That a process is a rank of the job is proved by the job's key (internal/pmi), which the caller gives to all of them.
// When a rank fails, or aborts the job, rank 0 closes all connections, by which the others learn it.
//
//	Owns:     the server of rank 0, from Lead to Close
//	May call: internal/pmi, internal/cpuset (for lists of ranks)
//	Never:    ends the process, knows how ranks were started
package rank0
