// Package frames is what gorun and its agents say to each other: frames on one stream of bytes, such as the standard
// streams of a remote shell.
//
// A frame is a header of five bytes (the length of the body, u32, little-endian, and the kind) and the body. [Next] is
// the decoder, without state. A [Link] is one end of a stream: it sends frames in order of their urgency, and output
// within a window that the other end opens, so that no exit, signal or ping ever waits behind output. It says that the
// other end is there as long as it is heard, and pings it.
//
//	Owns:     the two directions of one stream
//	May call: the standard library
//	Never:    knows what is in a body, starts a process
package frames
