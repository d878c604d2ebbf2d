// Package eager holds what small messages need: they are sent at once, without
// asking, and copied to the receiver's posted buffer or, if none is posted yet,
// to an unexpected-message buffer there. Both are bounded by credit.
//
//	Owns:     sending without asking (sender.go), which messages of medium length are sent so (tuner.go),
//	          the two ends of a credit account (credit.go), unexpected messages (unexpected.go) and their
//	          buffers (bounce.go)
//	May call: internal/wire; the link, once per message
//	Never:    wait for credit: it says no; match
package eager
