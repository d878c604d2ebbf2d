// Package transporttest is the one conformance suite that every transport
// passes. A transport's test file is a line:
//
//	func TestConformance(t *testing.T) { transporttest.Run(t, newPair) }
//
// Each rule of transport.go is a subtest of its own, named after the rule.
// Rules that a wrapper breaks on purpose are named with Without, which asks
// for a reason; nothing is skipped by itself, except that the race detector
// allocates.
//
//	Owns:     the rules, as tests
//	May call: transport, internal/wire, testing
//	Never:    an implementation; a sleep where the rule is that something happens
package transporttest
