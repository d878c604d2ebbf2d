package main

import (
	"fmt"
	"testing"
	"time"

	"github.com/gorun-mpi/mpi"
)

// Ranks that join within the time that is left for it begin together, and soon.
func TestInstant(t *testing.T) {
	second := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for after, want := range map[time.Duration]time.Duration{
		0: time.Second, 700 * time.Millisecond: time.Second, 799 * time.Millisecond: time.Second,
		800 * time.Millisecond: 2 * time.Second, 999 * time.Millisecond: 2 * time.Second,
	} {
		if got := instant(second.Add(after)).Sub(second); got != want {
			t.Errorf("%v after the second: begins %v after it, want %v", after, got, want)
		}
	}
}

func TestExchange(t *testing.T) {
	for _, ranks := range []int{2, 3, 8} {
		err := mpi.RunLocal(ranks, func(world *mpi.Comm) error {
			e := newExchange(world)
			e.out[0] = uint64(world.Rank()) + 1
			s, err := e.timed()
			if err != nil {
				return err
			}
			if ranks > 2 {
				for other, got := range e.in {
					if want := uint64(other) + 1; other != world.Rank() && got != want {
						return fmt.Errorf("%d from rank %d", got, other)
					}
				}
			}
			us, err := e.collect(s)
			if err == nil && world.Rank() == 0 && us < 0 {
				err = fmt.Errorf("%v µs", us)
			}
			return err
		})
		if err != nil {
			t.Errorf("%d ranks: %v", ranks, err)
		}
	}
}
