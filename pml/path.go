package pml

import "github.com/gorun-mpi/mpi/transport"

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
	// fail ends everything with err, now or when the device has let go of the buffer.
	fail(err error)
	// finish ends what is left then: the devices are closed.
	finish()
	// gone says why nothing can be sent to a rank or come from it, or nil: it has failed or returned. AnySource: of the
	// first other rank that has failed.
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
