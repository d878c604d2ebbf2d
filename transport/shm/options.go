package shm

import "time"

// Options of a Device. Rank and Size are of the world.
type Options struct {
	Rank, Size int
	Local      int                           // ranks on this host if known, else Size: smaller rings when there are many
	Bulk       int                           // bytes of a ring's bulk area; 0: chosen by Local
	NoGet      bool                          // no memory of others is reached, and no process reaches this rank's
	Tracer     int                           // a process from which all ranks of this host descend; 0: not known
	Job        string                        // its name
	Secret     func() ([]byte, error)        // the job's; called for the first connection; may block until it is known
	Log        func(msg string, args ...any) // of connections that prove nothing; nil: silent

	handshakeLimit time.Duration // 0: handshakeTime. Tests have less
	bySocket       bool          // no link is made directly. For tests
}
