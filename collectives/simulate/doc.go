// Package simulate prices schedules: it runs those of all ranks of a job in a model of hosts, NICs and a fat tree, and
// says when the last rank is done.
//
// The model is LogGP with what large machines add to it. A message costs its sender and its receiver processor time
// (Overhead), takes Latency and a little for each switch, and occupies its sender's and its receiver's NIC by its
// bytes; the ranks of a host share its NIC. Between leaf switches it also occupies the uplinks of both leaves. Inside a
// host it occupies the host's memory. A message past Eager waits for its receive, and takes a round trip more.
//
// The same job gives the same figures in every run: events at one time have the order of ranks.
//
// Ranks that are more than their host's processors wait for them. A model is fitted to calls that were measured (Fit),
// and compared with them (Compare): the order of algorithms, and the ratio of times.
//
//	Owns:     the model, time in it, what it takes to fit it
//	May call: collectives
//	Never:    read a clock, send, choose an algorithm
package simulate
