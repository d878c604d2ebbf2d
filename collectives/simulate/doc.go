// Package simulate prices schedules: it runs the schedules of all ranks of a job in a model of hosts, NICs and a fat
// tree, and returns when the last rank is done.
//
// The model is LogGP with the additions of large machines. A message costs its sender and its receiver processor time
// (Overhead), takes Latency and a little for each switch, and occupies the NICs of its sender and its receiver by its
// bytes; the ranks of a host share its NIC. Between leaf switches it also occupies the uplinks of both leaves. Inside a
// host it occupies the host's memory, unless processors move bytes: then long messages of fresh bytes alone do. A
// message longer than Eager waits for its receive, and takes one more round trip. If a host has more ranks than
// processors, ranks wait for a processor.
//
// The same job gives the same figures in every run: events at the same time have the order of ranks.
//
// Fit fits a model to measured calls. Compare compares a model with them: the order of algorithms, and the ratio of
// times.
//
//	Owns:     the model, its time, fitting it
//	May call: collectives
//	Never:    read a clock, send, choose an algorithm
package simulate
