// Package bootstrap describes what a rank knows about its job before any transport works: the interface [Client].
//
// Its implementations are internal/pmi (over PMI-1), bootstrap/pmix (a library), and bootstrap/rank0, in which rank 0
// itself serves. bootstrap/slurm and bootstrap/index lead to rank0, and bootstrap/detect chooses.
//
//	Owns:     the interface
//	May call: nothing
//	Never:    hold a connection
package bootstrap
