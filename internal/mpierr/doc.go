// Package mpierr has the errors that callers of mpi get: their classes, their texts, and the class of each error of the
// engine. Package mpi exports its names.
//
//	Owns:     the classes and their names in the standard, the text of an error
//	May call: pml, transport, accel (their errors), internal/ranks (its special values)
//	Never:    know a communicator, decide that a call fails
package mpierr
