// Package bench is what the benchmark programs share that needs messages: a rank's job (options, output, buffers), the
// meter that times rounds, and the two rounds that most of OSU's programs are made of, Pair (ping-pong) and Flight
// (windows of messages).
//
// A program defines one round and the Meter does the rest: warm-up, the clock around all rounds or, with -f and -c,
// around each, the patterns of -c, and the figures of all ranks brought to rank 0. What is called once for each
// message is a plain loop with the call of package mpi in it: no closure and no interface is called for a message, and
// nothing is allocated. Only where each round is timed by itself (-f, -c) one interface call is in its time.
//
// Owns: the timing, the ping-pong, the window, and the tags of both.
// May call: mpi, benchmarks/harness.
// Never: prints; depends on what a benchmark is for.
package bench
