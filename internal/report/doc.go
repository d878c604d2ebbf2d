// Package report records the calls of a rank, and makes a report of the records of all ranks.
//
// A Recorder (recorder.go) counts calls, bytes and times by the line of the program that makes the call, and keeps the
// first calls and messages one by one, as many as fit. Its Part is what a rank sends to rank 0, which merges all parts
// (merge.go), finds who waited for whom (waits.go) and says so in words (findings.go). It writes report.json and
// trace.json (write.go), and report.html: a page (page.html, page.css, page.js) with what a browser can draw of the
// report (page.go).
//
//	Owns:     the counts and the timeline of a rank, the clocks' offsets, the three files, what tells goroutines apart
//	May call: golang.org/x/sys (the clock of the host)
//	Never:    call the library that it records
package report
