// Package frames is the protocol between gorun and its agents: frames on one stream of bytes, such as the standard
// streams of a remote shell.
//
// A frame is a header of five bytes (the length of the body, u32, little-endian, and the kind) and the body. [Next]
// decodes frames and keeps no state. A [Link] is one end of a stream. It sends frames in order of their urgency, and
// output only within a window that the other end opens, so no exit, signal or ping waits behind output. It pings the
// other end, and reports the other end as lost after a silence.
//
//	Owns:     the two directions of one stream
//	May call: the standard library
//	Never:    know what is in a body, start a process
package frames
