package rendezvous

import (
	"fmt"

	"github.com/gorun-mpi/mpi/internal/wire"
)

// Scheme is one way to move the payload of a message. Each is a value, in a file of its own.
type Scheme struct {
	name  string
	index int                    // in the tuner's tables
	able  func(Facts) bool       // it can move such a message, and the sender is where it can do its part
	begin func(*Receiver) Action // the receiver's first step
}

// Schemes are all of them, in the order in which they are first tried.
var Schemes = [schemes]*Scheme{Stream, Get, Split}

const schemes = 3

func (s *Scheme) String() string { return s.name }

// What names the next step of a caller.
type What uint8

const (
	// Nothing is to wait for the next input.
	Nothing What = iota
	// Send the packet Header.
	Send
	// Expect fragments for bytes Off to Off+Len, and send Header, the CTS.
	Expect
	// Copy Len bytes of the fragment to Off of the receiver's buffer, then Copied.
	Copy
	// Fragment is to send Header with the Len bytes from Off, then Sent if it was taken.
	Fragment
	// Finish says that the receiver has all it wants. Its buffer is the caller's again; send Header, the FIN, if it has
	// a Kind.
	Finish
	// Part says that all that Ask has asked for is here.
	Part
	// Complete says that the sender's buffer is the caller's again.
	Complete
	// Fail says that the peer breaks the protocol; Err says how.
	Fail
)

// Action is what to do next.
type Action struct {
	Do       What
	Off, Len int64 // of the message
	Header   wire.Header
	Err      error
}

func failf(format string, args ...any) Action {
	return Action{Do: Fail, Err: fmt.Errorf("rendezvous: "+format, args...)}
}

// Region is memory that one end has registered for the other.
type Region struct {
	Addr, Key uint64
	Len       int64
	OK        bool // there is one
}
