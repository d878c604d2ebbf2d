// Package agree lets ranks agree on a new communicator: who calls what, which number it gets, and whether it is made.
//
// Ranks that make a communicator together hold an Exchange. Each round goes up a binomial tree to the first rank, which
// decides, and down again:
//
//	rank 0   decides ◄─────────── reports go up, a Payload adds what they carry
//	         │
//	         └──────────────────► the verdict goes down, or a Veto, which all ranks hear
//
// A number is free at all ranks (ContextIDs). In a last round the ranks vote (vote.go). The leaders of two groups
// exchange messages of their own (Bridge).
//
//	Owns:     numbers of communicators, what ranks say to agree on one, what is decided when a rank dies meanwhile
//	May call: pml, internal/ranks, internal/mpierr, internal/background
//	Never:    check a caller's arguments, run a collective operation, know a topology
package agree
