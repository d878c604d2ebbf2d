package mpierr

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/gorun-mpi/mpi/accel"
	"github.com/gorun-mpi/mpi/internal/ranks"
	"github.com/gorun-mpi/mpi/pml"
	"github.com/gorun-mpi/mpi/transport"
)

// Class is the kind of an error; §9.4. It is an error itself, for errors.Is.
type Class struct{ name, mpi string }

func (c *Class) Error() string { return c.name }

// MPI is the name of the class in the standard, or "" where it has none.
func (c *Class) MPI() string { return c.mpi }

// The classes, with what errors.Is is asked for.
var (
	ErrTruncate    error = &Class{"message longer than the buffer", "MPI_ERR_TRUNCATE"}
	ErrRank        error = &Class{"no such rank", "MPI_ERR_RANK"}
	ErrTag         error = &Class{"no such tag", "MPI_ERR_TAG"}
	ErrCount       error = &Class{"wrong count", "MPI_ERR_COUNT"}
	ErrType        error = &Class{"type cannot be sent", "MPI_ERR_TYPE"}
	ErrComm        error = &Class{"unusable communicator", "MPI_ERR_COMM"}
	ErrGroup       error = &Class{"unusable group", "MPI_ERR_GROUP"}
	ErrTopology    error = &Class{"no such topology", "MPI_ERR_TOPOLOGY"}
	ErrDims        error = &Class{"dimensions that cannot be", "MPI_ERR_DIMS"}
	ErrRoot        error = &Class{"no such root", "MPI_ERR_ROOT"}
	ErrBuffer      error = &Class{"unusable buffer", "MPI_ERR_BUFFER"}
	ErrOp          error = &Class{"operator that cannot be used", "MPI_ERR_OP"}
	ErrRequest     error = &Class{"unusable request", "MPI_ERR_REQUEST"}
	ErrEpoch       error = &Class{"no such epoch", "MPI_ERR_RMA_SYNC"}
	ErrRange       error = &Class{"outside the window", "MPI_ERR_RMA_RANGE"}
	ErrPeerFailed  error = &Class{"a peer has failed", "MPI_ERR_PROC_FAILED"}
	ErrRevoked     error = &Class{"the communicator has been revoked", "MPI_ERR_REVOKED"}
	ErrAborted     error = &Class{"the job was aborted", "MPI_ERR_OTHER"}
	ErrUnavailable error = &Class{"not available here", "MPI_ERR_UNSUPPORTED_OPERATION"}
	ErrSpawn       error = &Class{"processes could not be started", "MPI_ERR_SPAWN"}
	ErrNoMemory    error = &Class{"no memory", "MPI_ERR_NO_MEM"}
	ErrDevice      error = &Class{"an accelerator's driver reports an error", "MPI_ERR_OTHER"}
	ErrTimeout     error = &Class{"timed out", ""}
	ErrInit        error = &Class{"not joined", "MPI_ERR_OTHER"}
)

// Error is every error of this package.
type Error struct {
	Op    string // the call: "Send"
	Class error  // one of the Err… values, or a context's error
	Comm  string // name of the communicator; "" if the call has none
	Peer  int    // the rank that the caller named, in the communicator; Undefined if none
	Tag   int    // the tag that the caller named; Undefined if none
	Err   error  // what was wrong, in words; may wrap a cause

	source bool // Peer is a source, although the call can have a destination too
}

// Error says what was called, with which values, what was wrong and what to do.
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString("mpi: ")
	b.WriteString(e.Op)
	if e.Peer != ranks.Undefined || e.Class == ErrRank { // a wrong rank may be any number
		fmt.Fprintf(&b, " %s %s", e.preposition(), rankName(e.Peer))
	}
	if e.Tag != ranks.Undefined {
		fmt.Fprintf(&b, " tag %s", tagName(e.Tag))
	}
	if e.Comm != "" && e.Comm != "world" {
		fmt.Fprintf(&b, " on %s", e.Comm)
	}
	b.WriteString(": ")
	if e.Err != nil {
		b.WriteString(e.Err.Error())
	} else {
		b.WriteString(e.Class.Error())
	}
	return b.String()
}

func (e *Error) preposition() string {
	two := strings.Contains(e.Op, "endrecv")
	if two && e.source || !two && strings.Contains(e.Op, "ecv") || strings.Contains(e.Op, "robe") {
		return "from"
	}
	switch strings.TrimPrefix(e.Op, "gpu.") {
	case "Get", "RGet", "GetLayout", "RGetLayout", "WaitNote":
		return "from"
	case "Start", "Complete", "Post", "Wait", "Test":
		return "with"
	case "Lock", "Unlock", "LockAll", "UnlockAll", "Flush", "FlushLocal", "FlushAll", "FlushLocalAll", "FetchOp",
		"CompareAndSwap":
		return "at"
	}
	if strings.Contains(e.Op, "ccumulate") {
		return "at"
	}
	return "to"
}

func rankName(r int) string {
	switch r {
	case pml.AnySource:
		return "any source"
	case ranks.ProcNull:
		return "no process"
	}
	return fmt.Sprintf("rank %d", r)
}

func tagName(t int) string {
	if t == pml.AnyTag {
		return "any"
	}
	return fmt.Sprint(t)
}

// Unwrap gives errors.Is the class and the cause.
func (e *Error) Unwrap() []error { return []error{e.Class, e.Err} }

// ClassOf is the class of an engine's error.
func ClassOf(err error) error {
	var peer *pml.PeerError
	var driver *accel.Error
	switch {
	case errors.Is(err, pml.ErrTruncate):
		return ErrTruncate
	case errors.Is(err, pml.ErrRequest):
		return ErrRequest
	case errors.Is(err, pml.ErrTag):
		return ErrTag
	case errors.Is(err, context.Canceled):
		return context.Canceled
	case errors.Is(err, context.DeadlineExceeded) && !errors.As(err, &peer):
		return context.DeadlineExceeded
	case errors.Is(err, transport.ErrNoMemory):
		return ErrNoMemory
	case errors.Is(err, transport.ErrTimeout):
		return ErrTimeout
	case errors.Is(err, transport.ErrPeerGone), errors.As(err, &peer):
		return ErrPeerFailed
	case errors.Is(err, pml.ErrDevice), errors.As(err, &driver):
		return ErrDevice
	case errors.Is(err, transport.ErrUnavailable), errors.Is(err, accel.ErrNoDriver):
		return ErrUnavailable
	}
	return ErrAborted
}

// New is an error that names no communicator, rank or tag.
func New(op string, class error, format string, args ...any) *Error {
	return &Error{Op: op, Class: class, Peer: ranks.Undefined, Tag: ranks.Undefined, Err: fmt.Errorf(format, args...)}
}

// On names the communicator.
func On(e *Error, comm string) *Error {
	e.Comm = comm
	return e
}

// At names the rank and the tag that the caller gave. source: the call receives from that rank, as far as it can
// do both.
func At(e *Error, peer, tag int, source bool) *Error {
	e.Peer, e.Tag, e.source = peer, tag, source
	return e
}
