// Package tagmatch decides which receive gets which message.
//
// A posted receive and an arrived message are partners when their contexts are
// equal and their source and tag are equal, or the receive's are wildcards. Of
// several candidates the oldest wins, on both sides (MPI 4.1, sections 3.2.4
// and 3.5). An operation costs the same with one entry in the queue (a posted
// receive or an unexpected message) and with a million.
//
// A receive is posted; a message arrives:
//
//	if m := t.Post(&request.Receive); m != nil {
//		finish(request, m) // m was waiting and is off the table now
//	} // else the request is posted
//
//	if r := t.Arrive(ctx, source, tag); r != nil {
//		deliver(r) // r was waiting and is off the table now
//	} else {
//		t.Queue(&newUnexpected(ctx, source, tag).Message)
//	}
//
//	Owns:     the order of posted receives and of unexpected messages, and the bins they are linked in
//	May call: the standard library, and not per message
//	Never:    see a byte of payload, a transport, a clock; lock, block, start a goroutine
//
// The caller serialises all calls of one Table.
package tagmatch
