// Package vet finds mistakes in the use of package mpi that the compiler cannot see. [Analyzers] are for package
// golang.org/x/tools/go/analysis: "gorun vet" runs them, and so does go vet -vettool=$(which gorun).
//
// A check reports what is wrong in every run of the code that it looks at, and leaves alone what some programs may do
// rightly: an example of this project that it reports is a fault of the check.
//
//	Owns:     the checks of a user's source
//	May call: collectives (the names of operations)
//	Never:    run a program, look at this project's own customs
package vet
