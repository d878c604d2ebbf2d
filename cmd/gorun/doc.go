// Command gorun starts the ranks of a message-passing program on this host and others, watches them, and ends them
// together.
//
//	gorun -n 4 ./examples/heat     builds the package and runs 4 ranks of it
//	gorun -n 4 ./heat -steps 100   runs a binary; the words after its name are its arguments
//	gorun info                     prints the settings, and what this host has and allows
//	gorun doctor                   checks hosts for the requirements of jobs
//	gorun k8s manifest             writes the manifest of a job for Kubernetes
//	gorun simulate                 prices collective operations on a machine of any size
//	gorun tune                     measures collective operations on this host, and writes a file for programs
//
//	Owns:     the command line: flags, help, man page, completion
//	May call: launcher, internal/bind, internal/procs, internal/program, internal/k8s, internal/reach, internal/place,
//	          internal/auth, internal/settings, internal/sizes, internal/spelling, internal/cpuset, internal/topology,
//	          internal/waitpolicy; collectives and collectives/simulate; internal/join for the settings that Init
//	          refuses; internal/tuned; internal/tune, whose ranks are processes of this program; transport/tcp to try
//	          ports, transport/verbs, transport/ucx, transport/ofi, accel and accel/cuda to ask what devices can do
//	Never:    import package mpi; start or signal a process on its own
package main
