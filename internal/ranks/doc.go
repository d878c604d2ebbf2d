// Package ranks holds ordered sets of ranks of the world.
//
// A set is kept as runs with a stride: every rank of a job, each second one, or the ranks of each host take a few
// words, whatever their number.
//
//	Owns:     the representation of a set, how a rank is found in it, the special values of ranks
//	May call: the standard library
//	Never:    know a communicator, a message, or which rank the caller is
package ranks
