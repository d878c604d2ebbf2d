// Package bind gives each rank of a host its CPUs.
//
// [Assign] cuts the CPUs that gorun may use into parts, as --bind-to, --map-by and --rank-by say. [Share] is the
// GOMAXPROCS that fits a part.
//
//	Owns:     the values of --bind-to, the choice of CPUs
//	May call: internal/cpuset, internal/place
//	Never:    bind a process, read the machine
package bind
