// Package rank0 is the wire-up of a job whose launcher offers none: rank 0 serves PMI-1 to all ranks, itself included.
//
// A process proves that it is a rank of the job by the job's key (internal/pmi), which the caller gives to all ranks.
// When a rank fails, or aborts the job, rank 0 closes all connections, which tells the other ranks. In a job that
// survives failures (Job.Survive) rank 0 tells the others of the rank, and serves on.
//
//	Owns:     the server of rank 0, from Lead to Close
//	May call: internal/pmi, internal/auth (to try several addresses), internal/cpuset (for lists of ranks)
//	Never:    end the process, know how ranks were started
package rank0
