// Package launcher runs a job: it lays the ranks out, starts them here and on other hosts, finds the cause of a
// failure, and ends all ranks when one fails.
//
// A [Job] is the user's request; its [Options] are gorun's flags. [Job.Plan] places the ranks and makes a procs.Spec of
// each. [Job.Run] carries the plan out: one goroutine, the supervisor (run.go), waits for the next event, and a state
// machine without a clock (policy.go) decides which rank is to blame and which signal goes when.
//
// For ranks on other hosts this process is the head. Its fleet (fleet.go) has one child (child.go) for each agent that
// it has started, and an [Agent] sees the head as its parent (agent.go). A fleet knows its run by the interface
// supervisor (supervisor.go) only. The messages between them are in messages.go. In pods whose ranks may start again a
// [Keeper] starts the agents (keeper.go, pods.go).
//
//	Owns:     the plan of a job, its agents, the cause of its end, the exit code
//	May call: internal/pmi (the server's side), internal/procs, internal/stdio, internal/program, internal/bind,
//	          internal/place, internal/cpuset, internal/frames, internal/reach, internal/waits, golang.org/x/sys
//	Never:    import package mpi, start a process itself, read or write a rank's stream
package launcher
