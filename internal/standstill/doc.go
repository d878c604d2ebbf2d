// Package standstill tells the user of RunLocal that no rank can move: each waits in a call for another one, and the
// process has no other goroutine that could call the library.
//
// A timer looks at both, so calls pay nothing. A timer of time.AfterFunc, a finalizer or a signal could still call, and
// cannot be seen: so the job goes on.
//
//	Owns:     the looks at the ranks' waits and at the stacks of all goroutines, the text for the user
//	May call: pml, internal/agree (the contexts)
//	Never:    end a wait, fail a call
package standstill
