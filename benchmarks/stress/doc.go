// Stress sends random messages between all ranks for a given time, and checks every byte.
//
//	gorun -n 8 ./benchmarks/stress [-time 60s] [-rounds N] [-seed N] [-max BYTES] [-messages N] [-limits] [-hang 5m]
//	    [-pause FILE]
//
// All ranks draw the same rounds from the seed. A round is a list of messages, each with a source, a destination, a
// tag, a size (0 bytes to 8 MiB, most of them small), a mode (Send, Isend, Ssend, Issend, Bsend, Rsend) and a lane. A
// lane is a communicator of its own on which all receives are of one kind: exact, AnySource, AnyTag, both, or matched
// probe with a length from the message. In some rounds all receives are posted before the first send, in others they
// meet sends that are under way. At the same time goroutines of each rank call goroutines of other ranks. One goroutine
// cancels messages that it has sent, and waits with contexts that end.
//
// Stress checks for every message: source, tag and length in the Status; every byte; and that the standard allows this
// receive to get it (messages of one source that fit the same receives arrive in the order in which they were sent). At
// the end of a round it checks that no message is missing or came twice, and that nothing was written to a buffer after
// the end of its receive. A failure names the seed, the round and the message. A rank without progress for -hang
// reports the seed and the state of all its goroutines, and ends the job.
//
//	Owns:     the plan of each round and its verification
//	May call: mpi, benchmarks/harness, benchmarks/internal/bench
//	Never:    reach into the runtime
package main
