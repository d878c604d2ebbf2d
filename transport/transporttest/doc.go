// Package transporttest is the one conformance suite that every transport passes. Its test file is three lines:
//
//	func TestConformance(t *testing.T)       { transporttest.Run(t, newPair, abilities) }
//	func TestConformanceFaulty(t *testing.T) { transporttest.RunFaulty(t, newPair, abilities) }
//
//	var abilities = transporttest.Has(transporttest.Get | transporttest.Memory)
//
// Each rule of the seam is a subtest, named after it. The suite opens a pair and registers the rules that the pair's
// abilities call for: no rule is skipped for want of an ability. Has states which abilities those must be, so that one
// that is lost is a failure. A rule that a configuration breaks on purpose is named with Without, which asks for a
// reason.
//
// Every Poll is given packets full of rubbish, so that a field that a device does not set is found out.
//
//	Owns:     the rules, as tests
//	May call: transport, transport/faulty, internal/eventset, internal/wire, internal/testkit/proc, internal/testkit/leak
//	Never:    an implementation; a sleep where the rule is that something happens
package transporttest
