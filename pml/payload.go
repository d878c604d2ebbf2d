package pml

import "github.com/gorun-mpi/mpi/transport"

// The only place that touches the bytes of a request's buffer. Everything else hands the buffer on as it is: to a
// device that reaches it by itself, whatever kind of memory it is.

// copyIn copies what has arrived into a receive's buffer, and returns how much fitted.
func copyIn(buf transport.Mem, payload []byte) int { return copyShort(buf.Bytes(), payload) }

// copyShort is copy. One number is the most frequent message, and is copied without a call.
func copyShort(to, from []byte) int {
	if len(from) == 8 && len(to) >= 8 {
		*(*[8]byte)(to) = *(*[8]byte)(from)
		return 8
	}
	return copy(to, from)
}

// copyOut returns the bytes of a send's buffer, for a link that copies them.
func copyOut(buf transport.Mem) []byte { return buf.Bytes() }
