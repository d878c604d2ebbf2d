// Package picture draws what was measured: for --plot of a benchmark, and for benchmarks/compare.
//
// It is a package of its own, which a program names, because gonum/plot costs a program three megabytes of memory from
// the start: too much for those that measure what a rank costs.
//
// Owns: colours, axes, labels, the layout.
// May call: benchmarks/harness, gonum/plot.
// Never: depends on a benchmark, or on what a column means.
package picture
