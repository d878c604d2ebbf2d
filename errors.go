package mpi

import (
	"github.com/gorun-mpi/mpi/internal/mpierr"
)

// Error is every error of this package. Class is the kind of an error, §9.4, and an error itself, for errors.Is.
type (
	Error = mpierr.Error
	Class = mpierr.Class
)

// The classes.
var (
	ErrTruncate    = mpierr.ErrTruncate
	ErrRank        = mpierr.ErrRank
	ErrTag         = mpierr.ErrTag
	ErrCount       = mpierr.ErrCount
	ErrType        = mpierr.ErrType
	ErrComm        = mpierr.ErrComm
	ErrGroup       = mpierr.ErrGroup
	ErrTopology    = mpierr.ErrTopology
	ErrDims        = mpierr.ErrDims
	ErrRoot        = mpierr.ErrRoot
	ErrBuffer      = mpierr.ErrBuffer
	ErrOp          = mpierr.ErrOp
	ErrRequest     = mpierr.ErrRequest
	ErrPeerFailed  = mpierr.ErrPeerFailed
	ErrAborted     = mpierr.ErrAborted
	ErrUnavailable = mpierr.ErrUnavailable
	ErrNoMemory    = mpierr.ErrNoMemory
	ErrTimeout     = mpierr.ErrTimeout
	ErrInit        = mpierr.ErrInit
)

// opError is an error of a call on c.
func (c *Comm) opError(op string, class error, format string, args ...any) *Error {
	return mpierr.On(mpierr.New(op, class, format, args...), c.Name())
}
