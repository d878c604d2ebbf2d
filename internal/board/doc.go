// Package board lets ranks of one host wait for each other in shared memory. It implements transport.Board over memory
// that a device has mapped, and the parts of a device's Poll, Arm and Disarm for it.
//
//	Owns:     the layout of a board; which rank sleeps until which word, and which rank wakes it; which rank writes into
//	          another rank's memory
//	May call: transport, internal/ring (to prefetch)
//	Never:    map memory; wake a process: it names the process to wake
package board
