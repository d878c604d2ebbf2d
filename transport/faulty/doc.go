// Package faulty wraps a device and makes it misbehave by a seeded schedule, in ways that the seam allows and a correct
// engine must survive: refusals, delays, reordering between peers, early wake-ups, operations on the peer's memory that
// are late or fail, streams that are not placed, receives that are not taken; and, if asked, links that break, or the
// end of the device. It passes every ability of the wrapped device through, and each can misbehave.
//
// Poll returns copies only. The next Poll overwrites their payload, and fields that the event does not promise contain
// rubbish. So a test detects an engine that keeps a payload for too long, or reads such a field.
//
// A schedule depends on the seed and on the calls. Each link, Poll, Arm and Offload has a random sequence of its own,
// so that one does not disturb the others.
//
//	Owns:     the packets it holds back
//	May call: transport, internal/wire
//	Never:    break the seam: lose, double or reorder the packets of one peer; sleep; look at a clock
package faulty
