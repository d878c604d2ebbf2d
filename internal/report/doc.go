// Package report records the calls of a rank, and makes a report of the records of all ranks.
//
// A Recorder (recorder.go) counts calls, bytes and times by the line of the program that makes the call, and keeps the
// first calls and messages one by one, as many as fit. Its Part is what a rank sends to rank 0, which merges all parts
// (merge.go) and writes report.json and trace.json (write.go).
//
//	Owns:     the counts and the timeline of a rank, the clocks' offsets, the two files
//	May call: golang.org/x/sys (the clock of the host)
//	Never:    call the library that it records
package report
