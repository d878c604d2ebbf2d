// Package eager holds what small messages need: they are copied at once, to
// the receiver's posted buffer or, if none is posted yet, to an unexpected-
// message buffer there. Both are bounded by credit.
//
//	Owns:     the two ends of a credit account (credit.go), the unexpected-message buffers (bounce.go)
//	May call: the standard library
//	Never:    wait for credit: it says no; match; send
package eager
