// Package tcp carries packets between ranks over TCP, on one host or between many. Peers that share no memory use it.
//
// Two ranks have one connection, made when either of them first sends; both prove the job's secret before they read
// anything else (handshake.go). A frame is a header of internal/wire with the payload's length in it (frame.go). The
// sender writes a small frame at once, or appends it to others for a moment while it sends one after the other
// (conn_out.go). The payload of a large message goes from the user's buffer to the kernel, and from the kernel into the
// user's buffer (conn_in.go). All of that happens in calls of the engine, under its lock; goroutines only make
// connections and watch over their life (session.go, install.go, watch.go).
//
//	Owns:     the sockets, the bytes on their way into and out of them, which other ranks are connected
//	May call: internal/wire, internal/auth, internal/eventset, transport, golang.org/x/sys
//	Never:    match; resolve a name; parse unauthenticated data; wait while the engine's lock is held
package tcp
