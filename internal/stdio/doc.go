// Package stdio carries the standard streams of a job's ranks.
//
// Each output of a rank has a stream: a goroutine reads the rank's pipe, cuts the text into lines, tags them and puts
// them into an [Outlet]. An Outlet has one writer and a queue. A reader that takes nothing stops the ranks' streams and
// no other goroutine. Ranks of a failing job that write the same error have it shown once (dedup.go). The standard
// input goes to the ranks through pipes (feeder.go), and each rank reads at its own pace (spool.go). Between hosts the
// streams travel in frames, within a window ([Intake], [NewLinkOutlet]).
//
//	rank > pipe > stream (lines, tags, dedup) > Outlet > gorun's stdout, or frames > Intake > Outlet of the head
//
//	Owns:     the near ends of the ranks' pipes, the queues of output, the unread standard input
//	May call: internal/frames, internal/cpuset (to print lists of ranks)
//	Never:    start or signal a process, decide whether a job has failed
package stdio
