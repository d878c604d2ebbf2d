// Package waitpolicy says what a rank does while it waits for messages and finds none. The engine follows the policy, a
// job chooses it by its numbers of ranks and CPUs, and gorun info prints it.
//
//	Owns:     the policies, their durations, which one a job has
//	May call: the standard library
//	Never:    wait, read the environment
package waitpolicy
