package mpi_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/gorun-mpi/mpi"
	"github.com/gorun-mpi/mpi/collectives"
	"github.com/gorun-mpi/mpi/internal/join"
	"github.com/gorun-mpi/mpi/internal/testkit/truth"
	"github.com/gorun-mpi/mpi/transport"
	"github.com/gorun-mpi/mpi/transport/faulty"
)

// A rank that fails at any step of any algorithm leaves no other one waiting, and no other one with a wrong result that
// it takes for right. All ranks find out: those that did not depend on the rank, in the calls that follow.
func TestEveryStepOfEveryAlgorithmCanBeTheLast(t *testing.T) {
	counts, turn, each := []int{1, 300, 8000, 40_000}, 0, 11
	if testing.Short() {
		each = 97
	}
	for _, o := range truth.Operations {
		for _, a := range collectives.Algorithms(o) {
			if a.Needs&(collectives.KnownHosts|collectives.ConsecutiveHosts) != 0 {
				continue
			}
			t.Run(a.String(), func(t *testing.T) {
				for _, ranks := range []int{5, 4} {
					for victim := range ranks {
						for after := range 14 {
							if turn++; turn%each == 0 {
								call := truth.Call{Operation: o, Count: counts[turn%4], Root: turn % ranks,
									InPlace: truth.InPlace(o) && turn%3 == 0, Ordered: turn%2 == 0, Key: uint64(turn)}
								fails(t, a, call, ranks, victim, after)
							}
						}
					}
				}
			})
		}
	}
}

// fails makes a call again and again while a rank loses its links one by one, each after so many packets.
func fails(t *testing.T, a *collectives.Algorithm, call truth.Call, ranks, victim, after int) {
	what := fmt.Sprintf("%v, %v, %d ranks, rank %d fails after %d packets", a, &call, ranks, victim, after)
	cut := mpi.Option(func(o *join.Options) {
		o.Wrap = func(rank int, d transport.Device) transport.Device {
			var plan faulty.Plan
			for r := range ranks {
				if (r == victim) != (rank == victim) {
					plan.Cuts = append(plan.Cuts, faulty.Cut{Peer: r, After: after})
				}
			}
			return faulty.Wrap(d, 1, plan)
		}
	})
	defer time.AfterFunc(time.Minute, func() { panic(what + ": hangs") }).Stop()
	choice := "GORUN_COLL=" + a.String()
	if a.Operation != collectives.Barrier {
		choice += ",barrier:dissemination"
	}
	checked := fmt.Sprintf("GORUN_COLL_CHECK=%d", call.Key%5/4)
	err := mpi.RunLocal(ranks, func(w *mpi.Comm) error {
		failed := false
		for range 4 {
			err := call.Make(w)
			if failed = failed || err != nil; err != nil && !errors.Is(err, mpi.ErrPeerFailed) {
				return err
			}
		}
		for range 40 { // by now each link has carried so many packets
			err := mpi.Barrier(w)
			if failed = failed || err != nil; err != nil && !errors.Is(err, mpi.ErrPeerFailed) {
				return err
			}
		}
		if !failed && a.String() != "barrier:shared" { // which may need no message
			return errors.New("no call has failed")
		}
		return nil
	}, cut, mpi.WithEnviron([]string{choice, checked}))
	if err != nil {
		t.Errorf("%s, %s: %v", what, checked, err)
	}
}
