// Package faulty wraps a device and makes it misbehave by a seeded schedule, in ways that the seam allows and a correct
// engine must survive: refusals, delays, reordering between peers, early wake-ups, operations on the peer's memory that
// are late or fail, streams that are not placed, receives that are not taken; and, if asked, links that break. Every
// ability of the wrapped device is passed through, and can misbehave.
//
// What Poll gives is always a copy: its payload is overwritten at the next Poll, and the fields that its event does not
// promise are rubbish. So an engine that keeps a payload for too long, or reads such a field, is found out.
//
// A schedule depends on the seed and on the calls: the dice of each link, of Poll, of Arm and of Offload are thrown
// separately, so that one does not disturb the others.
//
//	Owns:     the packets it holds back
//	May call: transport, internal/wire
//	Never:    break the seam: lose, double or reorder the packets of one peer; sleep; look at a clock
package faulty
