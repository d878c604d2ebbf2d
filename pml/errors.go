package pml

import (
	"errors"
	"fmt"
)

// Errors of operations; package mpi gives them their class and their words.
var (
	ErrTruncate = errors.New("the message is longer than the buffer")
	ErrRequest  = errors.New("unusable request")
	ErrTag      = errors.New("the device cannot match this tag")
	ErrReturned = errors.New("has returned") // why a wait for a rank that has returned ends
)

// TruncateError says that the first Room bytes are in the buffer and the rest of the message is gone.
type TruncateError struct{ Size, Room int64 }

func (e *TruncateError) Error() string {
	return fmt.Sprintf("the message has %d bytes, the buffer %d", e.Size, e.Room)
}

// Is answers for ErrTruncate.
func (e *TruncateError) Is(target error) bool { return target == ErrTruncate }

// truncated says that a message of size bytes does not fit in r's buffer; nil if it does.
func (r *Request) truncated(size int64) error {
	if size > int64(r.buf.Len) {
		return &TruncateError{size, int64(r.buf.Len)}
	}
	return nil
}

// PeerError says that the operation needed Rank, which is gone, has returned, or cannot be reached.
type PeerError struct {
	Rank int
	Err  error
}

func (e *PeerError) Error() string { return fmt.Sprintf("rank %d%s%v", e.Rank, e.Between(), e.Err) }

// Between stands between the name of the rank and Err.
func (e *PeerError) Between() string {
	if e.Err == ErrReturned {
		return " "
	}
	return ": "
}
func (e *PeerError) Unwrap() error { return e.Err }

// BoardError says that Rank has ended the calls on a board, and Why, in words of package mpi; hostile.
type BoardError struct {
	Rank int
	Why  []byte
}

func (e *BoardError) Error() string {
	return fmt.Sprintf("what the ranks do on their board does not go together; seen at rank %d", e.Rank)
}
