// Package background runs calls that other ranks count on when their callers have left them, since a context has ended,
// and waits for them at the end of the rank.
//
//	Owns:     the count of such calls by communicator and by rank, their names, the error that names those that remain
//	May call: internal/mpierr
//	Never:    know a communicator, send a message
package background
