// Stress sends random messages between all ranks and checks every byte, until its time is up.
//
//	gorun -n 8 ./benchmarks/stress [-time 60s] [-seed N] [-max BYTES] [-messages N] [-pause FILE]
//
// All ranks draw the same rounds from the seed. A round is a list of messages, each with a source, a destination, a
// tag, a size (0 bytes to 8 MiB, most of them small), a mode (Send, Isend, Ssend, Issend, Bsend, Rsend) and a lane.
// A lane is a communicator of its own on which all receives are of one kind: exact, AnySource, AnyTag, both, or
// matched probe with a length that is taken from the message. In some rounds all receives are posted before the first
// send, in others they meet sends that are under way. Beside that, goroutines of each rank call goroutines of other
// ranks all the time, and one takes messages back that it has sent, and gives up waiting when its context ends.
//
// Checked for every message: source, tag and length in the Status, every byte, that the receive which got it is one
// that the standard allows (messages of one source that fit the same receives arrive in the order in which they were
// sent), and at the end of the round that no message is missing or came twice. A failure names the seed, the round and
// the message.
//
// Owns: the plan of each round and the verdict.
// May call: mpi, benchmarks/harness.
// Never: reaches inside of the runtime.
package main
