// Package truth makes collective calls whose results follow from the ranks, and compares these with what plain loops
// give: every call there is, and random programs of them.
//
//	Owns:     the calls, their data, the plain loops
//	May call: mpi, as any program does; collectives (the names of algorithms)
//	Never:    look inside: it works in one process, over shared memory and between hosts
package truth
