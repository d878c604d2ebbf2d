// Package picture draws measurements: for --plot of a benchmark, and for benchmarks/compare.
//
// A program names this package explicitly, because gonum/plot costs a program three megabytes of memory from the start:
// too much for programs that measure the cost of a rank.
//
//	Owns:     colours, axes, labels, the layout
//	May call: benchmarks/harness, gonum/plot
//	Never:    depend on a benchmark, or on the meaning of a column
package picture
