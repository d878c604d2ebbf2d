// Package collectives says what each rank does in a collective operation.
//
// An algorithm is a pure function from a rank's Params to its Schedule. A Schedule is a list of rounds, and a round is
// a list of messages and of local steps over three spaces of elements: In and Out, which are the caller's buffers, and
// Tmp, which the executor provides. Package mpi, the tests against a naive result, and the simulator run the same
// schedules.
//
//	b := new(collectives.Builder)                  // one for each cached schedule, or reused
//	a := choice.Algorithm(collectives.Allreduce, &p, collectives.Network)
//	s := b.Build(a, &p)                            // valid until the next Build of b
//	tmp := make([]T, s.Tmp)
//	for i := range s.Rounds {
//		messages, local := s.Round(i)
//		…                                          // post receives, start sends, wait for all; then local, in order
//	}
//
//	Owns:     the algorithms, what each needs, and the table that chooses among them
//	May call: the standard library
//	Never:    see a byte of payload, an element's type, a clock, a transport; lock, block, start a goroutine
package collectives
