// Package mpi is message passing for Go programs on one host or many: ranks,
// tags, communicators and windows as MPI 4.1 defines them, with Go's errors,
// contexts and goroutines.
//
// gorun (or mpiexec.hydra, or srun) starts a program as several ranks, and each
// rank calls Main:
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
// fixed size and no pointers: numbers, bools, arrays and structs of them.
// SendObject and BcastObject take other values. A Status counts bytes. The buffer of a
// nonblocking call belongs to the library until the request is done. A Layout
// names elements of a slice that are not contiguous.
//
// # Collective calls
//
// Every rank of a communicator makes the same collective calls in the same
// order. Each operation has three calls: Allreduce returns when it is done at
// this rank, Iallreduce returns a request, and AllreduceInit returns a request
// that can be started many times. WaitAny and the other calls for sets take
// requests of messages and of collective calls together, and a Set collects them
// call by call. BcastValue, GatherObjects and others take one value of a rank.
//
// # Windows
//
// A window (Win) has elements of each rank, which other ranks read, write and
// update without a call of that rank: Put, Get, Accumulate, FetchOp. Operations
// belong to epochs, which Fence, Start and Post, Lock, or LockAll open.
//
// # GPU memory
//
// Package gpu has the calls for messages and collective calls in memory of
// GPUs.
//
// # Errors
//
// Every error is an *Error and answers errors.Is for one class. A call that
// returns one of these has sent, received and lost nothing:
//
//   - ErrRank, ErrTag, ErrCount, ErrType: an argument is wrong
//   - ErrComm, ErrRequest: the communicator, window or request is nil, freed or used up
//   - ErrEpoch: the window has no epoch for the call, or one that excludes it
//   - ErrRange: an operation is outside the memory of the window
//   - ErrInit: the rank has not joined yet, or has left
//
// A call that takes part in a transfer may also end with one of these:
//
//   - ErrPeerFailed: the other rank has died, has returned, or cannot be reached
//   - ErrTimeout: the other rank did not answer in time during a connection
//   - ErrUnavailable: no transport connects the two ranks
//   - ErrNoMemory: there is no room for the transport's buffers
//   - ErrDevice: the driver of a GPU reports an error
//   - ErrAborted: the job ends, or another rank of RunLocal has failed
//   - context.Canceled, context.DeadlineExceeded: the context of WithContext ended
//
// The comment of a function names only the errors beyond these. § stands for a
// section of MPI 4.1.
//
//	Owns:     the public names; argument checks; communicators
//	May call: internal/agree, internal/coll, internal/window, rma (its modes of locks), pml, internal/join, collectives,
//	          internal/layout, internal/reduce, internal/standstill, internal/meminfo, internal/mpierr, internal/ranks,
//	          internal/door (for device memory), accel (its buffers), transport (its errors and interfaces)
//	Never:    run a schedule, touch a board, match a message, choose a protocol, know a concrete transport
package mpi
