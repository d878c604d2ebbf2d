// Package loop carries packets between ranks that are goroutines of one
// process. It is the transport of RunLocal and of messages to oneself, and the
// one to copy when writing another (docs/adding-a-transport.md).
//
// A device has one inbox: a queue under a mutex into which all its peers put
// copies of their packets. Each link may have a bounded amount in it, so that
// the back-pressure paths of the engine run here as they do over a wire.
//
//	Owns:     the inboxes, the payload buffers, the table of readable memory
//	May call: internal/wire, transport
//	Never:    match; know what a communicator is; hand one rank's memory to another but by copy; turn a number into a pointer
package loop
