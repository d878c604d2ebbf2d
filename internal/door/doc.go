// Package door is how package gpu, which is a package like a user's, makes calls that package mpi does not export.
// Package mpi opens the door in its init function, and package gpu goes through it. The two cannot name each other's
// types here: a communicator, a request and a message are passed as any.
//
//	Owns:     the calls, and the door
//	May call: accel (a buffer)
//	Never:    check an argument, know an engine
package door
