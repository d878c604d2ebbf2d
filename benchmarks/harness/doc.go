// Package harness is what the benchmark programs share: the options of the OSU micro-benchmarks 7.4, their
// defaults, the sizes and rounds that follow from them, statistics, patterns to validate by, and the output.
//
// The output is that of OSU 7.4, so that scripts which read it read ours: three lines that start with '#', then a
// line of size and value per message size. The title is the one of OSU followed by "(gorun)", so that a log shows
// which of the two wrote it.
//
// A benchmark's main has three parts: a Program describes it and the options it takes, Program.Start parses
// them (and answers -h, -v and mistakes on rank 0 only), and a Table (or a Report, which is a Table with the columns
// of OSU's point-to-point tests) prints. What a Table prints is also what --json prints as objects, and what --plot
// draws (docs/decisions/benchmarks.md).
//
// Owns: the options, the rounds, the layout of the output.
// May call: internal/sizes, pflag.
// Never: imports package mpi, sends, times a message or decides what is measured; that is the benchmark's.
package harness
