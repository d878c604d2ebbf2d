package main

import (
	"testing"

	"github.com/gorun-mpi/mpi"
	"github.com/gorun-mpi/mpi/benchmarks/harness"
	"github.com/gorun-mpi/mpi/benchmarks/internal/bench"
)

func TestSinkCountsItsSenders(t *testing.T) {
	for _, c := range []struct {
		name  string
		from  []int // the sender in each buffer; 0: something else
		wrong int64
	}{
		{"in turn", []int{1, 1, 2, 2}, 0},
		{"in any order", []int{2, 1, 2, 1}, 0},
		{"one of them lost, another one twice", []int{2, 1, 2, 2}, 1},
		{"something else", []int{1, 0, 2, 2}, 1},
		{"nothing right", []int{0, 0, 0, 0}, 4},
	} {
		s := &sink{Flight: &bench.Flight{Requests: make([]*mpi.Request, len(c.from))}, senders: 2}
		for _, sender := range c.from {
			buf := make([]byte, 64)
			if sender != 0 {
				harness.Fill(buf, 5, sender)
			}
			s.Buffers = append(s.Buffers, buf)
		}
		if got := s.Check(5); got != c.wrong {
			t.Errorf("%s: %d wrong, want %d", c.name, got, c.wrong)
		}
	}
}
