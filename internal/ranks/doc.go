// Package ranks holds ordered sets of ranks of the world.
//
// A set is a list of runs with a stride: every rank of a job, each second one, or the ranks of each host take a few
// words, for any number of ranks.
//
//	Owns:     the representation of a set, how a rank is found in it, the special values of ranks
//	May call: the standard library
//	Never:    know a communicator, a message, or which rank the caller is
package ranks
