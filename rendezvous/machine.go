package rendezvous

import "fmt"

// Scheme is how the payload moves.
type Scheme uint8

const (
	// Idle: not chosen, or over.
	Idle Scheme = iota
	// Get: the receiver READs.
	Get
	// Stream: the sender sends fragments.
	Stream
	// Split: the receiver READs the front while the sender writes the back into the receiver's buffer.
	Split
	// Schemes is their number, Idle included.
	Schemes = iota
)

func (s Scheme) String() string { return [...]string{"idle", "get", "stream", "split"}[s] }

// What a caller should do next.
type What uint8

const (
	// Nothing: wait for the next input.
	Nothing What = iota
	// SendCTS: tell the sender to stream from Off to Off+Len.
	SendCTS
	// Read: READ Len bytes at Off of the sender's buffer into Off of the receiver's, then Step(Got).
	Read
	// AskPut: ask the sender to write Len bytes at Off, the end of the message, then Step(Asked).
	AskPut
	// Copy: copy the fragment to Off of the receiver's buffer, then Step(Copied).
	Copy
	// Send: send Len bytes from Off as a fragment, then Step(Sent) if it was taken.
	Send
	// Finish: the receiver has all it wants: send FIN, complete the receive.
	Finish
	// Complete: the sender's buffer is free: complete the send.
	Complete
	// Drop: the input is out of date, ignore it.
	Drop
	// Fail: the peer breaks the protocol; Err says how.
	Fail
)

// Action is an answer of Step.
type Action struct {
	Do       What
	Off, Len int64
	Gen      int32 // SendCTS, Send: which stream
	Err      error
}

// On says what has happened.
type On uint8

const (
	// Matched (receiver): begin. Scheme says which way.
	Matched On = iota
	// Got (receiver): the READ of Len bytes is done.
	Got
	// GetFailed (receiver): it is not, and will never be.
	GetFailed
	// Fragment (receiver): Len bytes for Off have arrived.
	Fragment
	// Copied (receiver): they are in the buffer.
	Copied
	// Stalled (receiver): nothing has come for a while, and the sender's memory can be read.
	Stalled
	// Asked (receiver): the sender has been asked to write the back.
	Asked
	// PutDone (receiver): the sender has written it.
	PutDone
	// PutFailed (receiver): it has not and will not.
	PutFailed
	// Clear (sender): CTS for Off, Len.
	Clear
	// Room (sender): the link may take a fragment.
	Room
	// Sent (sender): it has taken Len bytes.
	Sent
	// Finished (sender): FIN.
	Finished
)

// Input of Step.
type Input struct {
	On       On
	Scheme   Scheme
	Off, Len int64 // Matched with Split: Len is the length of the back
	Gen      int32 // Clear, Fragment: which stream
}

func failf(format string, args ...any) Action {
	return Action{Do: Fail, Err: fmt.Errorf("rendezvous: "+format, args...)}
}
