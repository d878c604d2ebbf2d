package mpi

import (
	"errors"
	"fmt"

	"github.com/gorun-mpi/mpi/internal/mpierr"
	"github.com/gorun-mpi/mpi/pml"
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

// wrap makes an *Error of an engine's error, for a caller.
func (c *Comm) wrap(op string, peer, tag int, err error) error {
	if err == nil {
		return nil
	}
	err = c.named(op, peer, tag, err)
	hear(c.eng, err)
	return err
}

func (c *Comm) named(op string, peer, tag int, err error) error {
	var already *Error
	if errors.As(err, &already) {
		if already.Op == "" { // why all calls fail from now on
			return mpierr.At(&Error{Op: op, Class: already.Class, Comm: c.Name(), Err: already.Err}, peer, tag, true)
		}
		return err
	}
	var told *pml.BoardError
	if errors.As(err, &told) {
		if no := (&decoder{b: told.Why}).refusal(); no != nil {
			return &Error{Op: op, Class: no.class, Comm: c.Name(), Peer: peer, Tag: tag, Err: errors.New(no.text)}
		}
	}
	// A Sendrecv in progress is named by its receive.
	return mpierr.At(&Error{Op: op, Class: mpierr.ClassOf(err), Comm: c.Name(), Err: c.describe(err)}, peer, tag, true)
}

// describe translates the engine's ranks of the world into this communicator's, and adds what to do.
func (c *Comm) describe(err error) error {
	if errors.Is(err, pml.ErrTruncate) {
		return fmt.Errorf("%w: what does not fit is lost; use a longer buffer, or RecvAlloc", err)
	}
	var peer *pml.PeerError
	if errors.As(err, &peer) && c.eng != nil {
		both := c.groups != nil && c.local == nil // for a call on an intercommunicator
		switch r := c.rankOf(int32(peer.Rank)); {
		case both || r == Undefined:
			return fmt.Errorf("rank %d of the world%s%w", peer.Rank, peer.Between(), peer.Err)
		case r != peer.Rank:
			return fmt.Errorf("rank %d (%d in the world)%s%w", r, peer.Rank, peer.Between(), peer.Err)
		}
	}
	return err
}

// opError is an error of a call on c.
func (c *Comm) opError(op string, class error, format string, args ...any) *Error {
	return mpierr.On(mpierr.New(op, class, format, args...), c.Name())
}
