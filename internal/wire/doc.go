// Package wire is the header in front of every message between two ranks: its fields, its picture, and its encoding
// into bytes for transports that carry byte streams. Transports over shared memory store the fields directly.
//
//	Owns:     the meaning of the header's fields and their byte layout
//	May call: the standard library
//	Never:    see a payload, a transport, a clock
package wire
