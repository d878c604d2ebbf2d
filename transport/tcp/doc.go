// Package tcp carries packets between ranks over TCP, on one host or between
// many. It is used for the peers that share no memory.
//
// Two ranks have one connection, made when either of them first sends; both
// prove the job's secret before anything else is read (handshake.go). Frames are a
// header of internal/wire with the payload's length in it (frame.go). Small
// ones are written by the sender at once, or coalesced for a moment while it
// sends one after the other (conn_out.go); the payloads of large messages go
// from the user's buffer to the kernel and from the kernel into the user's
// buffer (conn_in.go). All of that happens in calls of the engine, under its
// lock; goroutines only make connections and watch over their life
// (session.go, install.go, watch.go).
//
//	Owns:     the sockets, what is on its way into and out of them, which other ranks are connected
//	May call: internal/wire, internal/auth, internal/eventset, transport, golang.org/x/sys
//	Never:    matches; resolves a name; parses what is not authenticated; waits while the engine's lock is held
package tcp
