package main

import (
	"testing"

	"github.com/gorun-mpi/mpi/benchmarks/harness"
	"github.com/gorun-mpi/mpi/benchmarks/internal/bench"
)

// However the goroutines are divided, all round trips that one side begins are answered by the other.
func TestSharesAddUp(t *testing.T) {
	for _, c := range []struct{ senders, receivers, each int }{
		{1, 2, 10}, {1, 2, 11}, {3, 2, 7}, {2, 5, 1}, {4, 4, 9}, {1, 1, 0},
	} {
		o := harness.Options{Senders: c.senders, Receivers: c.receivers}
		answered := 0
		for i := range c.receivers {
			answered += (&worker{Pair: &bench.Pair{}, opts: o, index: i}).roundTrips(c.each)
		}
		began := c.senders * (&worker{Pair: &bench.Pair{Serves: true}, opts: o}).roundTrips(c.each)
		if began != answered || began != c.senders*c.each {
			t.Errorf("%+v: %d begun, %d answered", c, began, answered)
		}
	}
}
