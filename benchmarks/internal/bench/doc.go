// Package bench is the part of the benchmark programs that needs messages: their main, a rank's job (options, output,
// buffers), the meter that times rounds, and the two rounds of most OSU programs, Pair (ping-pong) and Flight (windows
// of messages).
//
// A program hands Main its options and one function. It defines one round, and the Meter does the rest: it warms up,
// reads the clock around all rounds, or around each with -f and -c, checks the patterns of -c, and brings the figures of
// all ranks to rank 0. The code for each message is a plain loop around the call of package mpi: it calls no closure and
// no interface, and allocates nothing. Only with -f and -c the time of a round includes one interface call.
//
//	Owns:     the main, the timing, the ping-pong, the window, and the tags of both
//	May call: mpi, benchmarks/harness
//	Never:    lay out a line of output; depend on the purpose of a benchmark
package bench
