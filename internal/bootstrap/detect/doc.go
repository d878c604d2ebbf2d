// Package detect finds the launcher of this process and joins its job: the list of ways in, in the order in which they
// are tried, and the hints that forbid a silent world of one.
//
// [Join] goes through the list (ways.go). A way is taken if the environment offers it; one that is taken and fails is
// an error, and no later way is tried. If no way is offered, hints.go looks for variables that speak of several ranks
// all the same.
//
//	Owns:     the order of detection
//	May call: internal/pmi, internal/bootstrap, internal/bootstrap/*
//	Never:    opens a data connection, starts or ends a process, logs by itself
package detect
