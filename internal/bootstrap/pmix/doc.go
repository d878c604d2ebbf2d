// Package pmix joins jobs of launchers that speak PMIx: srun --mpi=pmix and Open MPI's mpirun.
//
// The build tag pmix includes it. Join opens libpmix.so.2 at run time, so a build needs no header and no library.
// Without the tag Built is false and Join fails. c.go is the only file with import "C". client.go has the rules of
// PMIx, and runs every call in a goroutine of its own, since a call into the library cannot be cancelled.
//
//	Owns:     the library, from Join to Finalize or Close
//	May call: internal/bootstrap, internal/pmi (its errors), libpmix
//	Never:    call more of libpmix than Init, Put, Commit, Fence, Get, Abort, Finalize
package pmix

// The variables by which a launcher that speaks PMIx is known.
const (
	EnvRank      = "PMIX_RANK"
	EnvNamespace = "PMIX_NAMESPACE"
)
