// Package mpi is message passing for Go programs on one host or many: ranks,
// tags and communicators as MPI 4.1 defines them, with Go's errors, contexts
// and goroutines.
//
// gorun (or mpiexec.hydra, or srun) starts a program as several
// ranks, and each of them calls Main:
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
// Messages match by communicator, source and tag. Two messages from one rank
// to another that match the same receive arrive in the order in which they
// were sent (MPI 4.1 §3.5). Any goroutine may call any function at any time
// (MPI_THREAD_MULTIPLE, §11.6).
//
// # Buffers
//
// A buffer is a slice; its length is the number of elements. Elements have a
// fixed size and no pointers: numbers, bools, arrays and structs of them
// (SendObject takes other values). Sizes in a Status are bytes. A buffer given
// to a nonblocking call belongs to the library until the request is done.
// A Layout names elements of a slice that do not lie one behind the other.
//
// # Collective calls
//
// Every rank of a communicator makes them, in the same order. Each operation
// has three: Allreduce returns when it is done here, Iallreduce returns a
// request, AllreduceInit one that can be started again and again. Requests of
// messages and of collective calls go together in WaitAny and its relatives.
//
// # Errors
//
// Every error is an *Error and answers errors.Is for one class. A call that
// returns one of these has sent, received and lost nothing:
//
//   - ErrRank, ErrTag, ErrCount, ErrType: an argument is wrong
//   - ErrComm, ErrRequest: the communicator or request is nil, freed or used up
//   - ErrInit: the rank has not joined yet, or has left
//
// A call that takes part in a transfer may also end with one of these:
//
//   - ErrPeerFailed: the other rank has died, has returned, or cannot be reached
//   - ErrTimeout: the other rank has not answered in time while connecting
//   - ErrUnavailable: no transport connects the two ranks
//   - ErrNoMemory: there is no room for the transport's buffers
//   - ErrAborted: the job ends, or another rank of RunLocal has failed
//   - context.Canceled, context.DeadlineExceeded: of WithContext
//
// The functions name only what else they return. § stands for a section of
// MPI 4.1 throughout.
//
//	Owns:     the public names; argument checks; communicators
//	May call: internal/agree, internal/coll, pml, internal/join, collectives, internal/layout, internal/reduce,
//	          internal/standstill, internal/mpierr, internal/ranks, transport (its errors and interfaces)
//	Never:    loop over messages, run a schedule, touch a board, copy payload, know a protocol
package mpi
