// Package detect finds the launcher of this process and joins its job. It has the list of ways in, in the order in
// which it tries them, and the hints that forbid a silent world of one.
//
// [Join] goes through the list (ways.go) and takes the first way that the environment offers. If that way fails, Join
// returns the error and tries no later way. If the environment offers no way, hints.go looks for variables that
// describe several ranks.
//
//	Owns:     the order of detection
//	May call: internal/pmi, internal/bootstrap, internal/bootstrap/*
//	Never:    open a data connection, start or end a process, log by itself
package detect
