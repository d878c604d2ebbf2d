// Package faulty wraps a device and makes it misbehave by a seeded schedule, in
// ways that the seam allows and a correct engine must survive: refusals,
// delays, reordering between peers, wake-ups for nothing, reads that are late
// or fail; and, if asked, links that break.
//
// What Poll gives is always a copy that is overwritten at the next Poll, so
// that an engine which keeps a payload for too long is found out.
//
// A schedule depends on the seed and on the calls: the dice of each link, of
// Poll, of Arm and of Park are thrown separately, so that one does not disturb
// the others.
//
//	Owns:     the packets it holds back
//	May call: transport, internal/wire
//	Never:    break the seam: lose, double or reorder the packets of one peer; sleep; look at a clock
package faulty
