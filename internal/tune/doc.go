// Package tune measures which algorithms of collective calls, and which eager limit, are fastest on this machine. gorun
// tune starts jobs whose ranks call [Run]; [Gains], [Lines] and [Eager] say what follows from the times.
//
// For each operation and size the algorithms take turns in rounds, so that a disturbance meets all of them. The table's
// choice is measured twice in each round: the difference of the two is the noise.
//
//	Owns:     the operations and sizes that are measured, the division of the time, the rules by which a line is
//	          written, and by which a line of an earlier file stays
//	May call: collectives, pml, internal/coll, internal/join, internal/ranks, internal/reduce, internal/tuned
//	Never:    start a process, write a file, read a setting
package tune
