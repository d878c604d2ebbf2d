package transport

import "context"

// Tagged is a device whose library does all matching and moving (UCX, libfabric). The engine uses none of its own
// protocols there. The caller of its methods holds the engine's lock, except for Reach. Operations end with TaggedDone
// and their cookie; for a receive, Peer, Header.Tag and Header.Len describe the message. After Full one Room, of any
// peer, says that the refused operation may be tried again.
//
// Cookies are below the greatest number of operations that the device has had at a time, so that a device may use them
// as indexes. Of an operation that is not Started the cookie is free.
type Tagged interface {
	Limits() TaggedLimits
	// Reach makes peer a possible destination. It may block; the error says what was tried.
	Reach(ctx context.Context, peer int, address []byte) error
	// TrySend sends a short message if that can be done at once; buf is then the caller's. Not sent: it has done
	// nothing. held: the message leaves with the next Poll, if no other call lets it leave before; never with now.
	TrySend(peer int32, m Match, buf Mem, now bool) (sent, held bool)
	// Send sends buf, which is the device's until the operation has ended; with sync not before it is matched.
	Send(peer int32, m Match, buf Mem, sync bool, cookie uint64) (State, error)
	// Post posts a receive. buf is the device's until the operation has ended. Done: a message was there, which is got.
	// waits: its caller does nothing else until it ends, and the device may look a little for what comes.
	Post(m Match, buf Mem, cookie uint64, waits bool) (got Probed, st State, err error)
	// Probe looks for a message that m matches. With take it is kept for Take, and no receive matches it any more.
	Probe(m Match, take bool) (Probed, bool)
	// Take receives a message that Probe has kept, and has told all about.
	Take(message uint64, buf Mem, cookie uint64) (State, error)
	// Cancel asks for the end of an operation. It ends in one TaggedDone all the same: done, or ErrCancelled. A device
	// that cannot take an operation back does nothing.
	Cancel(cookie uint64)
	// Abandon gives up an operation whose peer is gone, or that this rank has no use for any more. Its TaggedDone, or
	// TaggedGivenUp, comes when nothing can write to its buffer any more, or read it: soon, unless a peer that lives
	// may be in the middle of that. over: this rank's job is over, and no peer counts on what it sends: a send ends
	// soon, and may be read yet.
	Abandon(cookie uint64, over bool)
}

// TaggedLimits are the facts of a Tagged device.
type TaggedLimits struct {
	Contexts  uint32 // contexts below this one can be matched
	Tag       int32  // the largest tag
	SendsStay bool   // Cancel takes no send back
}

// Match is the envelope of a message, or of a receive: Source and Tag may then be wildcards, which are negative.
// For a send Source is the sender's rank.
type Match struct {
	Context     uint32
	Source, Tag int32
}

// Probed is a message that has been found. Message is for Take.
type Probed struct {
	Message     uint64
	Source, Tag int32
	Bytes       int64
}
