// Flood sends far more messages than the receiver takes, and shows what that costs the receiver.
//
//	gorun -n 2 ./benchmarks/flood [-n MESSAGES] [-s BYTES]
//
// Rank 0 sends as fast as Send lets it: 10 million messages of 1 KiB by default. Rank 1 receives nothing until no
// more messages come in, that is, until the runtime holds the sender back; then it takes half of what lies there, and
// waits again. So nearly every message is an unexpected one. Rank 1 checks the contents of each message, and that they
// come in the order in which they were sent.
//
// Printed: the messages received, the greatest number of bytes that unexpected messages took on rank 1 (from
// Comm.Stats), the limit GORUN_UNEXPECTED_MAX if it is set, the greatest resident size of rank 1, and the rate.
//
// Owns: the flood.
// May call: mpi, benchmarks/harness.
// Never: reaches inside of the runtime.
package main
