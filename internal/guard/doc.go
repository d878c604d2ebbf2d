// Package guard holds what messages cost as tests that no noise of a machine can trip, since they count and do not
// time: docs/decisions/benchmarks.md.
//
//   - instructions_linux_amd64_test.go: instructions of each hot path (paths_linux_test.go) under callgrind, compared
//     with testdata/instructions.txt and with each other (counts_linux_test.go)
//   - alloc_test.go: allocations of every operation that users repeat; there are none
//   - idlepeers_test.go: memory of a rank whose job is large and that talks to few
//   - crossing_verbs_test.go: what CPU and device do for a message over RDMA
//
// make guard runs the first two and prints the counts; make guard-rewrite records them.
//
//	Owns:     the list of hot paths, the recorded counts
//	May call: mpi, internal/join, pml, transport, transport/*
//	Never:    is imported, measures time
package guard
