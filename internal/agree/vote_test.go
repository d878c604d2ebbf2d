package agree

import (
	"testing"

	"github.com/gorun-mpi/mpi/internal/join"
	"github.com/gorun-mpi/mpi/internal/mpierr"
	"github.com/gorun-mpi/mpi/internal/ranks"
)

// A rank is told that all have voted yes, after another rank, whose round was ended, has had all agree that nothing is
// made. Its error has the class of what has ended the round there: a revocation is no failure.
func TestClassOfALostVote(t *testing.T) {
	const n, id = 3, 1
	for _, why := range []error{mpierr.ErrRevoked, mpierr.ErrPeerFailed, mpierr.ErrTimeout} {
		engines, _, err := join.Local(n, join.Options{Environ: []string{}})
		if err != nil {
			t.Fatal(err)
		}
		var all [n]Group
		for rank, e := range engines {
			all[rank].InitWorld(e, rank, n, func(error) {})
			all[rank].Serve()
			all[rank].Numbers.Reserve(id)
		}
		voters := ranks.Of(ranks.Strided(0, 1, n))
		ended := (&Veto{Class: why, Text: "why"}).Unknown()
		if no := all[2].Exchange(MakeDup).conclude(id, true, ended, voters); no != ended {
			t.Errorf("the rank whose round was ended by %v has %+v", why, no)
		}
		for rank := range 2 { // rank 0 was asked for the result, and rank 1 by that one
			if no := all[rank].Exchange(MakeDup).conclude(id, true, nil, voters); no == nil || no.Class != why {
				t.Errorf("rank %d, after another round was ended by %v: %+v", rank, why, no)
			}
		}
		for _, e := range engines {
			e.Close(FreedError("world"))
		}
	}
}
