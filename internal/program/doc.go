// Package program finds the program that a user names, builds it if it is a Go package, and brings it to other hosts.
//
// [Find] tells whether a name is an executable or a package. [Program.Build] compiles a package into a file without a
// name, so nothing remains, however gorun ends. [Send] reads an executable in pieces, and an [Inbox] on another host
// makes a program of them.
//
//	Owns:     the executables that gorun has built or received
//	May call: internal/procs (the go command runs in a process group that a cleaner knows)
//	Never:    start a rank, know a frame
package program
