// Package rendezvous is the protocol of large messages: ask first, move the
// payload once a receive is matched. Both ends are pure machines:
//
//	action = machine.Step(input)
//
// The sender says RTS (address, length, registration key). The receiver, once
// matched, chooses a scheme: get (it READs the sender's memory; the sender's
// CPU takes no part) or stream (it says CTS and the sender sends fragments).
// It may change over in the middle of a message, from stream to get when the
// sender stops sending, from get to stream when a READ fails. FIN ends the
// transfer: only then is the sender's buffer free.
//
//	Owns:     one transfer's phase and offsets; one scheme per file (get.go, stream.go)
//	May call: the standard library
//	Never:    send, copy, sleep, or touch a request: it returns what should be done
package rendezvous
