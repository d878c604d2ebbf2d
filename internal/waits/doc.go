// Package waits says which rank of a job waits for which: the account that a rank gives of itself (account.go), the
// table that a user reads of all accounts (table.go), and the decision that no rank of a job can move (watch.go).
//
// An account comes from another process: Decode checks it.
//
//	Owns:     the text of an account, the lines of the table, the state of a Watch
//	May call: the standard library
//	Never:    ask a rank, read a clock, know an engine
package waits
