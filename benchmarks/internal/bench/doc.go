// Package bench holds the parts of the benchmark programs that send messages: their main, a rank's job (options,
// output, buffers), the meter that times rounds, and the two rounds of most OSU programs, Pair (ping-pong) and Flight
// (windows of messages).
//
// A program hands Main its options and one function. It defines one round, and the Meter does the rest: warm-up, the
// clock around all rounds or, with -f and -c, around each, the patterns of -c, and the collection of all ranks' figures
// on rank 0. A plain loop calls package mpi for each message: it calls no closure and no interface for a message, and
// it allocates nothing. With -f and -c the time of each round has one interface call in it.
//
// Owns: the main, the timing, the ping-pong, the window, and the tags of both.
// May call: mpi, benchmarks/harness.
// Never: lays out a line of output; depends on what a benchmark is for.
package bench
