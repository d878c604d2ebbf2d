// Package transport is the seam between the messaging engine (package pml) and the devices that carry packets between
// two ranks.
//
//	Owns:     the interfaces, the packet, the errors; nothing else lives here
//	May call: internal/wire
//	Never:    an implementation; anything above it
//
// docs/adding-a-transport.md says how to write one.
package transport
