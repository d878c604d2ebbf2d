// Package slurm joins the ranks of a Slurm step that offers no PMI (srun --mpi=none): a rendezvous at rank 0, at which
// munge proves whose processes both sides are.
//
// step.go reads SLURM_*. keyservice.go is the rendezvous: rank 0 listens on a port that follows from the job and the
// step, a rank shows a credential of munge, and has in return a credential with the job's key, which only a process of
// the same user can open. With it the rank joins as package rank0 has it. munge.go runs the programs munge and unmunge.
//
//	Owns:     the port of the key service, from Join until the rank leaves
//	May call: internal/bootstrap/rank0, internal/auth, internal/place, the programs munge and unmunge
//	Never:    believes a credential of another user, step, rank or exchange
package slurm
