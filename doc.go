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
// # The calls that most programs need
//
//   - join a job: Main; in a test: RunLocal
//   - who am I: Comm.Rank, Comm.Size
//   - send a slice, receive it: Send, Recv; both at once: Sendrecv
//   - go on meanwhile: Isend, Irecv, and a Set that waits for them
//   - one value, any value: SendValue, RecvValue, SendObject, RecvObject
//   - give all ranks what one has: Bcast, BcastObject
//   - combine what all have: Allreduce, AllreduceValue
//   - collect what all have: Gather, GatherObjects
//   - wait for all: Barrier
//   - some of the ranks: Comm.Split
//
// The sections below have every name of the package once. docs/cookbook.md has whole recipes.
//
// # Joining and leaving
//
// Main, Init, Finalize, Abort, RunLocal. Options: Option, WithLogger, WithEnviron.
//
// # Seeing the calls
//
// WithHooks and Hooks tell a program of each Call, before and after it, and of each request Completed. Its CallKind is
// CallSend, CallRecv, CallSendrecv, CallProbe, CallWait, CallCollective, CallPut, CallGet, CallSync, CallCreate,
// CallPrepare or CallOther.
//
// # Communicators and groups
//
// Comm, Self, Group, Range, Comparison (Ident, Congruent, Similar, Unequal). Topologies: Dims, Edge, Weights;
// Comm.Cart, Comm.Graph and Comm.DistGraph make them. Counters: Stats, Fallbacks, Fallback. ProcNull stands for no
// rank, and Undefined for no value.
//
// Messages match by communicator, source and tag. Two messages from one rank
// to another that match the same receive arrive in the order in which they
// were sent (MPI 4.1 §3.5). Any goroutine may call any function at any time
// (MPI_THREAD_MULTIPLE, §11.6).
//
// # Starting ranks
//
// Spawn starts ranks that have a world of their own, and Parent connects them with the ranks that called it. Options:
// SpawnOption, SpawnRoot, SpawnDir.
//
// # Outliving ranks
//
// Comm.Failed, Comm.AckFailed, Comm.Revoke, Comm.Agree and Comm.Shrink let a program go on without ranks that have
// died, and Comm.Replace with new ones in their places: docs/recovery.md.
//
// # Messages
//
// Send, Ssend, Bsend, Rsend, Recv, RecvAlloc, Sendrecv, SendrecvReplace, SendValue, RecvValue, SendObject, RecvObject.
// Probe, Mprobe, Mrecv, Message. AnySource, AnyTag, MaxTag, Status, Count. Most have a form with I, which returns a
// request (Isend), and one that returns a persistent request (SendInit).
//
// A buffer is a slice; its length is the number of elements. Elements have a
// fixed size and no pointers: numbers, bools, arrays and structs of them.
// SendObject and BcastObject take other values. A Status counts bytes. The buffer of a
// nonblocking call belongs to the library until the request is done.
// Buffer and Alloc: memory that other ranks and RDMA devices use in place.
//
// # Requests
//
// Request, Set, StartAll, WaitAll, WaitAllStatus, WaitAny, WaitSome, AppendSome, Completion, TestAll, TestAny,
// TestSome. They take requests of messages, of collective calls and of windows together.
//
// # Layouts
//
// Layout, Of, Contiguous, Vector, HVector, Indexed, HIndexed, Struct, Field, Subarray, Order, OrderC, OrderFortran,
// Darray, ArrayDim, DistributeNone, DistributeBlock, DistributeCyclic, Resized. Pack, Unpack, SendLayout, RecvLayout,
// SendrecvLayout. A Layout names elements of a slice that are not contiguous.
//
// # Collective calls
//
// Barrier, Bcast, Gather, Gatherv, Scatter, Scatterv, Allgather, Allgatherv, Alltoall, Alltoallv, Reduce, Allreduce,
// ReduceScatter, ReduceScatterBlock, Scan, Exscan. Among neighbours of a topology: NeighborAllgather,
// NeighborAllgatherv, NeighborAlltoall, NeighborAlltoallv. With layouts: BcastLayout, Gatherw, Scatterw, Allgatherw,
// Alltoallw, NeighborAlltoallw. Root is the root of a call between the groups of an intercommunicator.
//
// Every rank of a communicator makes the same collective calls in the same
// order. Each operation has three calls: Allreduce returns when it is done at
// this rank, Iallreduce returns a request, and AllreduceInit returns a request
// that can be started many times.
//
// One value of a rank: BcastValue, ReduceValue, AllreduceValue, GatherValues, AllgatherValues, ScatterValues. Any
// value: BcastObject, GatherObjects, AllgatherObjects, ScatterObjects. Slices of unknown lengths: GatherAlloc,
// AllgatherAlloc.
//
// # Operators
//
// Op, Reduction, Ordered. Sum, Prod, Min, Max of a Number or Real; BitAnd, BitOr, BitXor of an Integer; LogicalAnd,
// LogicalOr, LogicalXor of a Logical; MinLoc, MaxLoc of a Loc; Replace, NoOp for windows.
//
// # Windows
//
// Win, WinAlloc, WinShared, WinContiguous, WinCreate, WinDynamic, WinOption, NICAtomics, LockMode, Shared, Exclusive.
//
// A window has elements of each rank, which other ranks read, write and
// update without a call of that rank: Win.Put, Win.Get, Win.Accumulate, Win.FetchOp. Operations
// belong to epochs, which Win.Fence, Win.Start and Win.Post, Win.Lock, or Win.LockAll open.
//
// # GPU memory
//
// Package gpu has the calls for messages and collective calls in memory of
// GPUs.
//
// # Errors
//
// Every error is an *Error and answers errors.Is for one class, a Class. A call that
// returns one of these has sent, received and lost nothing:
//
//   - ErrRank, ErrTag, ErrCount, ErrType, ErrRoot, ErrBuffer, ErrGroup, ErrTopology, ErrDims: an argument is wrong
//   - ErrComm, ErrRequest: the communicator, window or request is nil, freed or used up
//   - ErrEpoch: the window has no epoch for the call, or one that excludes it
//   - ErrRange: an operation is outside the memory of the window
//   - ErrInit: the rank has not joined yet, or has left
//
// A call that takes part in a transfer may also end with one of these:
//
//   - ErrPeerFailed: the other rank has died, has returned, or cannot be reached
//   - ErrRevoked: a rank has revoked the communicator
//   - ErrOp: the operator is nil, or has panicked
//   - ErrTruncate: the message was longer than the buffer
//   - ErrTimeout: the other rank did not answer in time during a connection
//   - ErrUnavailable: no transport connects the two ranks
//   - ErrSpawn: processes could not be started, or have not joined
//   - ErrNoMemory: there is no room for the transport's buffers
//   - ErrDevice: the driver of a GPU reports an error
//   - ErrAborted: the job ends, or another rank of this process has failed
//   - context.Canceled, context.DeadlineExceeded: the context of WithContext ended
//
// The comment of a function names only the errors beyond these. § stands for a
// section of MPI 4.1.
//
//	Owns:     the public names; argument checks; communicators
//	May call: internal/agree, internal/consensus (its values), internal/coll, internal/window, rma (its modes of
//	          locks), pml, internal/join, collectives, internal/layout, internal/reduce, internal/standstill,
//	          internal/waits, internal/report, internal/meminfo,
//	          internal/mpierr, internal/ranks, internal/door (for device memory), accel (its buffers), transport (its
//	          errors and interfaces)
//	Never:    run a schedule, touch a board, match a message, choose a protocol, know a concrete transport
package mpi
