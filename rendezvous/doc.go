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
// A stream ends without FIN over a link that reports by itself when it has read the buffer: the flag NoFIN of RTS says
// so.
//
// Both ends are pure machines, receiver.go and sender.go, with a method for
// each event. A method returns an Action for the caller, including the packet
// to send. The receiver may change the scheme in mid-message: from stream to
// get when the sender stops sending, from get to stream when a READ fails or a
// sender whose stream had stalled sends again.
//
//	Owns:     one transfer's phase, offsets and packets; a file per scheme; which scheme is chosen (choose.go, tuner.go)
//	May call: internal/wire
//	Never:    send, copy, sleep, read a clock, or touch a request: it returns the action
package rendezvous
