// Package mpi is message passing for Go programs on one host or many: ranks,
// tags, communicators, in the sense of MPI 4.1, with Go's errors, contexts and
// goroutines.
//
// A program is started as several ranks by gorun (or by mpiexec.hydra, or
// srun --mpi=pmi2), and each of them calls Main:
//
//	func main() {
//		mpi.Main(func(ctx context.Context, world *mpi.Comm) error {
//			if world.Rank() == 0 {
//				return mpi.Send(world, []float64{1, 2, 3}, 1, 7)
//			}
//			buf := make([]float64, 3)
//			_, err := mpi.Recv(world, buf, 0, 7)
//			return err
//		})
//	}
//
// Messages match by communicator, source and tag; two messages from one rank
// to another that match the same receive arrive in the order they were sent
// (MPI 4.1 §3.5). Everything may be called by any goroutine at any time
// (MPI_THREAD_MULTIPLE, §11.6). Buffers are slices of any fixed-size type
// without pointers. A buffer given to a nonblocking call belongs to the
// library until the request is done.
//
// Every error is an *Error and answers errors.Is for the Err… values.
//
//	Owns:     the public names; argument checks; communicators
//	May call: pml, internal/join, transport (its errors and interfaces)
//	Never:    loop over messages, copy payload, know a protocol
package mpi
