// Package auth authenticates the connections of a job. Two processes prove to each other that they know the job's
// secret before either reads anything else from the other, and a connection without that proof has a bounded cost.
//
// A [Handshaker] does both roles of the handshake on any net.Conn (handshake.go; messages.go draws the messages). The
// result is a [Session], then the connection itself, encrypted by TLS if both sides want that (tls.go). An [Acceptor]
// runs the acceptor's role on a listener. It bounds the pending connections, makes room by closing the oldest one of
// the host that has most of them, and counts and logs refusals (acceptor.go, notice.go). A secret may come from a file
// (keyfile.go). A dialler tries the addresses of the other side by [Race] (race.go), and repeats an attempt that was
// turned away by [Retry] (reason.go).
//
//	Owns:     the handshake's messages and keys; a listener and its pending connections
//	May call: golang.org/x/sys
//	Never:    know what is spoken afterwards; tell a side without the secret more than its version; log a secret
package auth
