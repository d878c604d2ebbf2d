package pml

import (
	"github.com/gorun-mpi/mpi/eager"
	"github.com/gorun-mpi/mpi/tagmatch"
	"github.com/gorun-mpi/mpi/transport"
)

// Wildcards, as tagmatch has them.
const (
	AnySource = tagmatch.AnySource
	AnyTag    = tagmatch.AnyTag
)

// path is how messages are matched and moved. Requests, their persistence, waiting and the lock are the engine's; the
// lock is held in every call. There are two: linkPath is ours, for devices that make links, and taggedPath leaves both
// to a device that can do that by itself.
//
// A request is the path's from send, post or take until it calls Engine.complete with it, which may be before these
// return.
type path interface {
	// address is what peers look up.
	address() []byte

	// sendNow sends a short message if that is possible at once.
	sendNow(ctx uint32, dest int, tag int32, buf []byte) bool
	send(r *Request)
	post(r *Request)
	// cancel takes r back if that is possible, now or when a peer or a device has answered. why is r's error then.
	cancel(r *Request, why error)

	// probe finds the message that a receive with this envelope would get. take: it is no other's from now on.
	probe(ctx uint32, source, tag int32, take bool) (found, bool)
	// take receives what probe has taken.
	take(f found, r *Request)

	// events handles what a poll has filled in, also if that is nothing. It returns how much more has happened.
	events(pkts []transport.Packet) int
	// stalled is called when nothing has come for a while. It reports whether that has led to something to do.
	stalled() bool

	// drop forgets a communicator: its messages are lost, its receives fail with err.
	drop(ctx uint32, err error)
	// revokeReceives ends the receives of a context that no message has been matched with. revoke ends the other
	// operations that which chooses with err, now or when their messages are not moved any more.
	revokeReceives(ctx uint32, err error)
	revoke(which func(*Request) bool, err error)
	// fail ends everything with err, now or when the device has let go of the buffer.
	fail(err error)
	// finish ends what is left then: the devices are closed.
	finish()
	// gone says why nothing can be sent to a rank or come from it, or nil: it has failed or returned.
	gone(rank int32) error
	// count adds what is waiting now. Stats is passed as a value, which stays on the stack.
	count(s Stats) Stats
}

// found is a message that a probe has found.
type found struct {
	ctx    uint32
	status Status
	u      *unexpected // of linkPath
	// message is a Tagged device's name for it.
	message uint64
}

// unexpected is a message that arrived before its receive. Owner: the table while queued; a probe that has taken it.
type unexpected struct {
	m tagmatch.Message
	eager.Unexpected
	peer  *peer
	taken bool  // by a matched probe
	early early // it is fetched before it is matched

	broken error // it has not come, and its sender has said that it cannot send it

	to           *Request    // of one that is being fetched: the receive that has matched it; it has left the table
	next         *unexpected // free list
	older, newer *unexpected // in peer.asked ⇔ ID != 0 and the table's or a probe's
}

// Stats are the counters of one rank since it joined. Counts are of messages, receives or sends; sizes are bytes.
type Stats struct {
	EagerSent        uint64 // messages sent whole
	RendezvousSent   uint64 // messages announced first
	BytesSent        uint64 // payload of all messages
	MatchedOnArrival uint64 // messages whose receive was posted
	Matched          uint64 // messages that waited in the unexpected queue
	Gets             uint64 // receives begun by READ
	Splits           uint64 // receives begun by READ, with the sender writing the other half
	Streams          uint64 // sends that were asked to stream
	TakenOver        uint64 // streams that the receiver finished by READ
	GetsFailed       uint64 // READs that failed and were replaced by a stream
	Refused          uint64 // connections closed because the other end did not prove to be of the job

	// Where a device matches tags (GORUN_TM).
	OffloadMatches   uint64    // messages that the device has matched; they are in MatchedOnArrival too
	SoftwareMatches  uint64    // messages of the same peers that software has
	OffloadPosted    uint64    // receives that the device was given
	OffloadTakenBack uint64    // receives that it gave back: cancelled, or matched by software
	OffloadFallbacks Fallbacks // receives that it was not given, by reason

	UnexpectedBytes int64 // now: envelopes and payloads that wait for a match
	UnexpectedPeak  int64 // the greatest UnexpectedBytes so far
	Posted          int   // receives waiting now
	Unexpected      int   // messages waiting now
}
