package pml

import "github.com/gorun-mpi/mpi/transport"

// The only place that touches the bytes of a request's buffer. Everything else hands the buffer on as it is: to a
// device that reaches it by itself, whatever kind of memory it is.

// copyIn copies what has arrived into a receive's buffer, and returns how much fitted.
func copyIn(buf transport.Mem, payload []byte) int { return copy(buf.Bytes(), payload) }

// copyOut returns the bytes of a send's buffer, for a link that copies them.
func copyOut(buf transport.Mem) []byte { return buf.Bytes() }
