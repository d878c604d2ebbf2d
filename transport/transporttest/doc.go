// Package transporttest is the one conformance suite that every transport passes. Its test file is three lines:
//
//	func TestConformance(t *testing.T)       { transporttest.Run(t, newPair, abilities) }
//	func TestConformanceFaulty(t *testing.T) { transporttest.RunFaulty(t, newPair, abilities) }
//
//	var abilities = transporttest.Has(transporttest.Get | transporttest.Memory)
//
// Each rule of the seam is a subtest, named after it. The suite opens a pair of devices and registers the rules for
// their abilities, so it skips no rule for want of an ability. Has states the abilities, so a lost ability is a
// failure. Without names a rule that a configuration breaks on purpose, and asks for a reason.
//
// The suite gives every Poll packets full of rubbish, and so detects a device that does not set a field.
//
//	Owns:     the rules, as tests
//	May call: transport, transport/faulty, internal/eventset, internal/wire, internal/testkit/proc,
//	          internal/testkit/leak
//	Never:    know an implementation; sleep where the rule is that something happens
package transporttest
