// Package harness is the part of a benchmark program that needs no messages: the options of the OSU micro-benchmarks
// 7.4 with their defaults, the sizes and rounds that follow from them, statistics, patterns for validation, and the
// output.
//
// The output has the format of OSU 7.4, so scripts that read OSU's output read ours: three lines that start with '#',
// then one line of size and value per message size. The title is OSU's title followed by "(gorun)", so a log shows
// which of the two wrote it.
//
// A benchmark's main has three parts. A Program describes the benchmark and its options. Program.Start parses the
// options, and answers -h, -v and mistakes on rank 0 only. A Table prints; a Report is a Table with the columns of
// OSU's point-to-point tests. --json prints the rows of the Table as objects, and --plot draws them
// (docs/decisions/benchmarks.md).
//
//	Owns:     the options, the rounds, the layout of the output
//	May call: internal/sizes, pflag
//	Never:    import package mpi, send, time a message, or decide what to measure: the benchmark does
package harness
