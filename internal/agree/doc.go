// Package agree lets ranks agree on a new communicator: which call each rank makes, which number the communicator gets,
// and whether it is made.
//
// Ranks that make a communicator together hold an Exchange. Each round goes up a binomial tree to the first rank, which
// decides, and down again:
//
//	rank 0   decides ◄─────────── reports go up, a Payload adds what they carry
//	         │
//	         └──────────────────► the verdict goes down, or a Veto, which all ranks hear
//
// The number of a communicator is free at all its ranks (ContextIDs). In a last round the ranks vote (vote.go). The
// leaders of two groups exchange messages of their own (Bridge). Programs that outlive ranks agree and revoke by
// recovery.go.
//
//	Owns:     the numbers of communicators, the messages by which ranks agree, the decision after a death
//	May call: pml, internal/consensus, internal/ranks, internal/mpierr, internal/background
//	Never:    check a caller's arguments, run a collective operation, know a topology
package agree
