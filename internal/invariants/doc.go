// Package invariants holds one constant: whether assertions that cost time are
// compiled in (build tag invariants, or the race detector).
//
//	Owns:     Enabled
//	May call: nobody
//	Never:    change what the program does, only whether it checks itself
package invariants
