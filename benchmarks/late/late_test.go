package main

import (
	"fmt"
	"testing"

	"github.com/gorun-mpi/mpi/benchmarks/harness"
)

func TestLateness(t *testing.T) {
	for _, c := range []struct {
		low, high int64
		want      string
	}{{30, 10000, "[30 100 1000 10000]"}, {31, 1000, "[100 1000]"}, {0, 29, "[]"}, {10000, 1 << 40, "[10000]"}} {
		if got := fmt.Sprint(lateness(harness.Options{MinSize: c.low, MaxSize: c.high})); got != c.want {
			t.Errorf("%d:%d: %s, want %s", c.low, c.high, got, c.want)
		}
	}
}
