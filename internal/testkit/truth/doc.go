// Package truth makes collective calls whose results follow from the ranks, and compares the results with plain loops:
// every existing call, and random programs of calls. Random programs on windows check the results in the same way, also
// when a rank dies.
//
//	Owns:     the calls, their data, the plain loops
//	May call: mpi, as any program does; collectives (the names of algorithms)
//	Never:    look inside: it works in one process, over shared memory and between hosts
package truth
