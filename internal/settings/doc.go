// Package settings is the one list of all GORUN_ environment variables, and its reader.
//
// The list is the type [Values]: a new variable is a field and its comment. The accepted values of [Load], the output
// of gorun info and the manual page follow from it, and so do, by go generate, the tables of docs/settings.md and
// docs/mpi-names.md.
//
//	Owns:     names, defaults, ranges, meanings and syntax of the variables
//	May call: the standard library, internal/spelling, internal/sizes
//	Never:    read the environment on its own, change it, log
package settings

//go:generate go test -count=1 -run ^TestGenerated$ . -rewrite
