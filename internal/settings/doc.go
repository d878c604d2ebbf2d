// Package settings is the one list of all GORUN_ environment variables, and its reader.
//
// The list is the type [Values]: a field and its comment are all there is to write for a variable. From it are made
// what [Load] accepts, the output of gorun info, the manual page, and with go generate the tables of
// docs/settings.md and docs/mpi-names.md.
//
//	Owns:     names, defaults, ranges, meanings and syntax of the variables
//	May call: the standard library, internal/spelling, internal/sizes
//	Never:    reads the environment on its own, changes it, logs
package settings

//go:generate go test -count=1 -run ^TestGenerated$ . -rewrite
