// Package bootstrap is what a rank knows of its job before any transport works: the interface [Client].
//
// Its implementations are internal/pmi (over PMI-1), bootstrap/pmix (a library), and bootstrap/rank0, where rank 0
// itself serves: bootstrap/slurm and bootstrap/index lead there. bootstrap/detect chooses.
//
//	Owns:     the interface
//	May call: nothing
//	Never:    holds a connection
package bootstrap
