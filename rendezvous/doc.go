// Package rendezvous is the protocol of large messages: ask first, move the
// payload once a receive is matched.
//
//	sender                                  receiver
//	  │  RTS  length, address, key             │
//	  ├───────────────────────────────────────►│ matched: a scheme is chosen (choose.go)
//	  │                                        │
//	  │◄───── READ, READ, READ ────────────────┤ get:    get.go
//	  │                                        │
//	  │◄────────────────────────────────── CTS ┤ stream: stream.go
//	  ├─ Data, Data, Data ────────────────────►│
//	  │                                        │
//	  │◄─────────────────────────────── PutReq ┤ split:  split.go, with get for the front
//	  ├─ WRITE, WRITE ────────────────────────►│
//	  ├─ PutDone ─────────────────────────────►│
//	  │                                        │
//	  │◄────────────────────────────────── FIN ┤ the sender's buffer is free
//
// After a stream over a link that says itself when it has let go of it there is no FIN: the flag NoFIN of RTS says so.
//
// Both ends are pure machines, receiver.go and sender.go: a method for each
// thing that can happen, whose Action is what the caller does next, the packet
// to send included. The receiver may change over in the middle of a message,
// from stream to get when the sender stops sending, from get to stream when a
// READ fails or a sender whose stream had stalled sends again.
//
//	Owns:     one transfer's phase, offsets and packets; a file per scheme; which scheme is chosen (choose.go, tuner.go)
//	May call: internal/wire
//	Never:    send, copy, sleep, read a clock, or touch a request: it returns what should be done
package rendezvous
