// Package launcher starts the processes of a job, watches them, and ends them all when one fails.
//
// A [Job] is what the user asked for; [Job.Plan] places its ranks and turns it into one [procs.Spec] per rank; [Job.Run]
// carries it out. What differs between ways of starting processes is behind [Backend]; the local one is in local.go.
// Everything else (wire-up, output, standard input, signals, the cause of a failure, the exit code) is here once.
//
// For ranks on other hosts this process is the head (fleet.go), which has an [Agent] on each host (agent.go); what they
// say to each other is in messages.go.
//
// Owns: the processes of a job from start to reaping, their standard streams, the exit code.
// May call: internal/pmi (the server's side), internal/place, internal/cpuset, internal/frames, internal/reach.
// Never: imports package mpi, names anything in a file system except what the user asked for.
package launcher
