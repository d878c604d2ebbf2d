// Package waitpolicy says what a rank does while it waits for messages and finds none: a policy that the engine
// follows, that a job chooses by its numbers of ranks and CPUs, and that gorun info prints.
//
//	Owns:     the policies, their durations, which one a job has
//	May call: the standard library
//	Never:    wait, read the environment
package waitpolicy
