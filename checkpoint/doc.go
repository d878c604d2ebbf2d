// Package checkpoint keeps copies of slices in the memory of other ranks, so that a job that loses a rank goes on from
// its last checkpoint.
//
//	s := checkpoint.New()
//	checkpoint.Add(s, u)                       // a slice of this rank
//	step, _, err := s.Restore(world)           // 0 in a job that begins
//	for ; err == nil && step < steps; step++ {
//		err = compute(world, u)
//		if err == nil && step%100 == 99 {
//			err = s.Save(step + 1)
//		}
//	}
//
// Each rank sends a copy of its slices to partners, on other hosts where there are any. A rank holds two checkpoints,
// so that a death in a Save leaves the one before it whole. After a death the program makes a communicator of the old
// size, in which a new rank has the place of the dead one (Comm.Replace), and every rank calls Restore on it.
//
// A rank needs 2 × (1 + Partners) times the memory of its slices.
//
//	Owns:     the copies, their numbers, who holds which
//	May call: mpi
//	Never:    decide that a rank is dead, make a communicator of the survivors
package checkpoint
