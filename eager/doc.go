// Package eager handles small messages: a rank sends them at once, without asking, and the receiver copies them into
// the posted buffer or, without a posted receive, into an unexpected-message buffer. Credit bounds both.
//
//	Owns:     sending without asking (sender.go), which messages of medium length are sent so (tuner.go), the two ends
//	          of a credit account (credit.go), unexpected messages (unexpected.go) and their buffers (bounce.go)
//	May call: internal/wire; the link, once per message
//	Never:    wait for credit: it says no; match
package eager
