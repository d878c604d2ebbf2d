// Package guard tests the cost of messages by counting instead of timing, so no noise of a machine can fail it:
// docs/decisions/benchmarks.md.
//
//   - instructions_linux_amd64_test.go: instructions of each hot path (paths_linux_test.go) under callgrind, compared
//     with testdata/instructions.txt and with each other (counts_linux_test.go)
//   - alloc_test.go: operations that users repeat allocate nothing
//   - idlepeers_test.go: memory of a rank whose job is large and that talks to few ranks
//   - crossing_verbs_test.go: work of CPU and device for a message over RDMA
//
// make guard runs the first two and prints the counts; make guard-rewrite records them.
//
//	Owns:     the list of hot paths, the recorded counts
//	May call: mpi, internal/join, pml, transport, transport/*
//	Never:    be imported, measure time
package guard
