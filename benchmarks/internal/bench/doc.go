// Package bench holds the parts of the benchmark programs that send messages: their main, a rank's job (options,
// output, buffers), the meter that times rounds, and the two rounds of most OSU programs, Pair (ping-pong) and Flight
// (windows of messages).
//
// A program hands Main its options and one function. It defines one round, and the Meter does the rest. It warms up,
// reads the clock around all rounds, or around each with -f and -c, checks the patterns of -c, and collects the figures
// of all ranks on rank 0. A plain loop calls package mpi for each message: it calls no closure and no interface for a
// message, and allocates nothing. With -f and -c the time of each round includes one interface call.
//
//	Owns:     the main, the timing, the ping-pong, the window, and the tags of both
//	May call: mpi, benchmarks/harness
//	Never:    lay out a line of output; depend on the purpose of a benchmark
package bench
