// Package slurm joins the ranks of a Slurm step that offers no PMI (srun --mpi=none). Ranks meet at rank 0, and munge
// proves to each side which user runs the other.
//
// step.go reads SLURM_*. In keyservice.go rank 0 listens on a port that follows from the job and the step. A rank shows
// a munge credential, and gets a credential with the job's key, which only a process of the same user can open. With
// the key the rank joins by package rank0. munge.go runs the programs munge and unmunge.
//
//	Owns:     the port of the key service, from Join until the rank leaves
//	May call: internal/bootstrap/rank0, internal/auth, internal/place, the programs munge and unmunge
//	Never:    believe a credential of another user, step, rank or exchange
package slurm
