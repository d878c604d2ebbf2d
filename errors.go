package mpi

import (
	"github.com/gorun-mpi/mpi/internal/mpierr"
)

// Error is the type of every error of this package. A Class is the kind of an error, §9.4, and an error for errors.Is.
type (
	Error = mpierr.Error
	Class = mpierr.Class
)

// The classes of errors. errors.Is(err, ErrRank) reports whether err has the class.
var (
	ErrTruncate    = mpierr.ErrTruncate    // a message was longer than its receive
	ErrRank        = mpierr.ErrRank        // the communicator has no such rank
	ErrTag         = mpierr.ErrTag         // the tag is not in 0 … MaxTag
	ErrCount       = mpierr.ErrCount       // a length or a number is wrong, or differs between ranks
	ErrType        = mpierr.ErrType        // the elements cannot be sent, or have another type than the layout
	ErrComm        = mpierr.ErrComm        // the communicator is nil, freed or of the wrong kind
	ErrGroup       = mpierr.ErrGroup       // the group is nil or does not fit the call
	ErrTopology    = mpierr.ErrTopology    // the communicator has no such topology, or the graph is wrong
	ErrDims        = mpierr.ErrDims        // no grid has these dimensions or coordinates
	ErrRoot        = mpierr.ErrRoot        // there is no such root, or ranks give different roots
	ErrBuffer      = mpierr.ErrBuffer      // buffers of one call overlap, or a buffer is not memory that the call can use
	ErrOp          = mpierr.ErrOp          // an operator has panicked, or differs between ranks
	ErrRequest     = mpierr.ErrRequest     // the request is nil or used up, or operations are still open
	ErrEpoch       = mpierr.ErrEpoch       // the window's epoch does not allow the call
	ErrRange       = mpierr.ErrRange       // an operation reaches beyond the window's memory
	ErrPeerFailed  = mpierr.ErrPeerFailed  // the other rank has died, has returned or is out of reach
	ErrRevoked     = mpierr.ErrRevoked     // a rank has revoked the communicator
	ErrAborted     = mpierr.ErrAborted     // the job ends, another rank of RunLocal has failed, or no rank of it can move
	ErrUnavailable = mpierr.ErrUnavailable // nothing here provides it: no transport, launcher or build tag
	ErrSpawn       = mpierr.ErrSpawn       // processes could not be started, or have not joined
	ErrNoMemory    = mpierr.ErrNoMemory    // there is no room for buffers, or no such memory
	ErrDevice      = mpierr.ErrDevice      // an accelerator's driver reports an error
	ErrTimeout     = mpierr.ErrTimeout     // the other rank did not answer in time during a connection
	ErrInit        = mpierr.ErrInit        // the rank has not joined yet, or has left
)

// opError is an error of a call on c.
func (c *Comm) opError(op string, class error, format string, args ...any) *Error {
	return mpierr.On(mpierr.New(op, class, format, args...), c.Name())
}
