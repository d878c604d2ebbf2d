// Package background runs calls that other ranks depend on after their callers' contexts have ended, and waits for them
// at the end of the rank.
//
//	Owns:     the count of such calls by communicator and by rank, their names, the error that names the remaining ones
//	May call: internal/mpierr
//	Never:    know a communicator, send a message
package background
