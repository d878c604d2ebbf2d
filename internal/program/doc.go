// Package program finds the program that a user names, builds it if it is a Go package, and brings it to other hosts.
//
// [Find] says whether a name is an executable or a package. [Program.Build] compiles a package into a file without a
// name, so that nothing stays behind, however gorun ends. [Send] reads an executable in pieces; an [Inbox] on another
// host makes a program of them.
//
//	Owns:     the executables that gorun has built or received
//	May call: internal/procs (the go command runs in a process group that a cleaner knows)
//	Never:    starts a rank, knows a frame
package program
