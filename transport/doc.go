// Package transport is the seam between the messaging engine (package pml) and the devices that carry packets between
// two ranks. docs/adding-a-transport.md says how to write one.
//
//	Owns:     the interfaces, the packet, the errors; nothing else
//	May call: internal/wire
//	Never:    know an implementation, or anything above it
package transport
