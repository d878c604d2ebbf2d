// Package pmix joins jobs of launchers that speak PMIx: srun --mpi=pmix and mpirun of Open MPI.
//
// It is built with the tag pmix, and then opens libpmix.so.2 when Join is called: no header and no library is needed to
// build it. Without the tag Built is false and Join fails. c.go is the only file that says import "C"; client.go has
// the rules of PMIx and runs every call in a goroutine of its own, since calls into the library cannot be taken back.
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
