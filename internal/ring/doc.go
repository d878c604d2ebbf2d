// Package ring is a queue of packets in shared memory, with one producer and one consumer that may be different
// processes.
//
//	Owns:     offsets and memory ordering inside one ring; layout.go has the picture
//	May call: the standard library, golang.org/x/sys/cpu
//	Never:    know what a tag or a rank is; sleep; use a word of the other side without checking it
package ring
