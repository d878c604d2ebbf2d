// Package looptag is the twin of package loop that matches by itself, as a
// library does (transport.Tagged): for tests of what pml does with such a device.
//
// All ranks of a fabric share one lock. A sender gives its message to the
// receiver's table: if a receive is posted the bytes are copied there and then;
// if not, a short message is kept and a long one is announced, and its bytes
// stay with the sender until it is matched.
//
//	Owns:     the tables, the messages that are kept
//	May call: tagmatch, transport
//	Never:    make a link
package looptag
