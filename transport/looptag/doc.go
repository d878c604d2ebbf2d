// Package looptag is a variant of package loop that matches by itself, as a library does (transport.Tagged): it tests
// how pml uses such a device.
//
// All ranks of a fabric share one lock. A sender gives its message to the receiver's table. If a receive is posted, the
// bytes are copied at once. If not, the table keeps a short message, and announces a long one, whose bytes stay with
// the sender until a receive matches it.
//
//	Owns:     the tables and the messages in them
//	May call: tagmatch, transport
//	Never:    make a link
package looptag
