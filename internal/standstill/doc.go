// Package standstill says what the ranks of this process wait for: in which call each is, at which line of the user's
// code, for whom. [Account] answers gorun. [Watcher] tells the user of RunLocal that no rank can move: each waits in a
// call for another one, and the process has no other goroutine that could call the library.
//
// Both look at the requests of the engines and at the stacks of all goroutines, so calls pay nothing. A timer of
// time.AfterFunc, a finalizer or a signal could still call, and cannot be seen: so the job goes on.
//
//	Owns:     the looks at the ranks' waits and at the stacks of all goroutines, the text for the user
//	May call: pml, internal/agree (the contexts), internal/coll (the tags), internal/waits
//	Never:    end a wait, fail a call, write a file but a dump that gorun asks for
package standstill
