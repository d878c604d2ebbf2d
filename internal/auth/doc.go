// Package auth authenticates the connections of a job: two processes prove to each other that they know the job's
// secret before either reads anything else of the other, and connections that prove nothing cost a bounded amount.
//
// A [Handshaker] does both roles of the handshake on any net.Conn (handshake.go; messages.go draws the messages).
// The result is a [Session], then the connection itself, encrypted by TLS if both sides want that (tls.go).
// An [Acceptor] runs the acceptor's role on a listener: it bounds the pending connections, makes room by closing the
// oldest of the host that has most of them, and counts and logs what it refuses (acceptor.go, notice.go).
// A secret may come from a file (keyfile.go). A dialler tries the addresses of the other side by [Race] (race.go), and
// each of them again by [Retry] where it is turned away (reason.go).
//
//	Owns:     the handshake's messages and keys; a listener and its pending connections
//	May call: golang.org/x/sys
//	Never:    knows what is spoken afterwards; tells a side without the secret more than its version; logs a secret
package auth
