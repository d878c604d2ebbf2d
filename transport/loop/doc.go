// Package loop carries packets between ranks that are goroutines of one process. It is the transport of RunLocal and of
// messages to oneself, and the one to copy when writing another (docs/adding-a-transport.md).
//
//	Owns:     the queues, the payload buffers, the table of memory that other ranks read and write
//	May call: internal/board, internal/meminfo, internal/wire, transport
//	Never:    match; hand one rank's memory to another except by copy; turn a number into a pointer
package loop
