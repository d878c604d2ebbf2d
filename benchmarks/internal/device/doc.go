// Package device plays the ping-pong and the windows of package bench with buffers in the memory of a device, for the
// programs that take -d. A rank whose buffers are of the host plays with package bench, as it does without -d.
//
// The package starts no driver before the first buffer. Validation fills and compares on the host, and copies.
//
//	Owns:     the choice of a rank's device, buffers there and the patterns in them
//	May call: mpi, gpu, benchmarks/harness, benchmarks/internal/bench
//	Never:    time a message; print
package device
