package simulate

import (
	"fmt"
	"math"

	"github.com/gorun-mpi/mpi/collectives"
)

// Sweep is a table of simulated calls: every algorithm of each operation, at each number of ranks and size.
type Sweep struct {
	Operations []collectives.Operation
	Only       []string // names of algorithms; none: all
	Ranks      []int
	PerHost    int
	Bytes      []int64 // of Count: of what, is said at collectives.Operation
	Model      *Model
	Limit      int // calls with more messages (or rounds of ranks) are left out; 0: none is
	// Progress, if not nil, is told when a call begins, and now and then while it is priced.
	Progress func(Progress)

	rows, row int // of a run: how many calls it has, and which one is priced
}

// Progress is how far a sweep is.
type Progress struct {
	Row, Rows int // the call, from 1 on, and how many there are
	Algorithm *collectives.Algorithm
	Ranks     int
	Bytes     int64
	Sent      int64 // messages that have been priced
	Of        int   // about how many the call has at most
}

// Row is one simulated call.
type Row struct {
	Algorithm *collectives.Algorithm
	Ranks     int
	PerHost   int
	Bytes     int64
	Chosen    bool  // the table gives this algorithm
	Left      error // why the call was left out; nil: it was not
	Result
}

// unsimulated says why an operation cannot be simulated.
func unsimulated(o collectives.Operation) error {
	if o.BetweenGroups() {
		return fmt.Errorf("%v is between two groups of ranks, and a simulation has one", o)
	}
	if o.Neighborhood() {
		return fmt.Errorf("%v depends on a graph of ranks, which a simulation does not have", o)
	}
	return nil
}

// Price simulates one call, whose Params have no counts for each rank: they are equal.
func Price(a *collectives.Algorithm, p collectives.Params, m *Model) (Result, error) {
	if err := unsimulated(a.Operation); err != nil {
		return Result{}, err
	}
	equalCounts(a.Operation, &p)
	return (&Job{Algorithm: a, Params: p, Model: m}).Run()
}

// Check says what is wrong with a sweep.
func (s *Sweep) Check() error {
	if s.PerHost < 1 {
		return fmt.Errorf("%d ranks per host; it must be 1 at least", s.PerHost)
	}
	for _, o := range s.Operations {
		if err := unsimulated(o); err != nil {
			return err
		}
	}
	for _, ranks := range s.Ranks {
		if ranks < 1 || ranks > math.MaxInt32 {
			return fmt.Errorf("%d ranks; there must be 1 at least, and %d at most", ranks, math.MaxInt32)
		}
	}
	return nil
}

// Run calls f for each row until f returns an error.
func (s *Sweep) Run(f func(Row) error) error {
	if err := s.Check(); err != nil {
		return err
	}
	s.rows, s.row = 0, 0
	err := s.calls(func(collectives.Params, *collectives.Algorithm, bool) error {
		s.rows++
		return nil
	})
	if err != nil {
		return err
	}
	return s.calls(func(p collectives.Params, a *collectives.Algorithm, chosen bool) error {
		s.row++
		row := Row{Algorithm: a, Ranks: p.Size, PerHost: s.PerHost, Bytes: p.Count, Chosen: chosen}
		j := Job{Algorithm: a, Params: p, Model: s.Model}
		work := j.work()
		if row.Left = s.tooLong(work); row.Left == nil {
			if s.Progress != nil {
				j.Sent = func(n int64) {
					s.Progress(Progress{s.row, s.rows, a, p.Size, p.Count, n, work})
				}
				j.Sent(0)
			}
			var err error
			if row.Result, err = j.Run(); err != nil {
				return err
			}
		}
		return f(row)
	})
}

// calls calls f for each call.
func (s *Sweep) calls(f func(p collectives.Params, a *collectives.Algorithm, chosen bool) error) error {
	for _, o := range s.Operations {
		for _, ranks := range s.Ranks {
			for _, bytes := range s.Bytes {
				if err := s.call(o, ranks, bytes, f); err != nil {
					return err
				}
				if o == collectives.Barrier {
					break
				}
			}
		}
	}
	return nil
}

// call calls f for each algorithm of a call.
func (s *Sweep) call(o collectives.Operation, ranks int, bytes int64,
	f func(p collectives.Params, a *collectives.Algorithm, chosen bool) error,
) error {
	p := collectives.Params{Size: ranks, Count: bytes, ElemSize: 1, Commutative: true,
		Hosts: collectives.Blocks{Ranks: ranks, PerHost: s.PerHost}}
	equalCounts(o, &p)
	via := collectives.Network
	if ranks <= s.PerHost {
		via = collectives.SharedMemory
	}
	var table collectives.Choice
	chosen := table.Algorithm(o, &p, via)
	for _, a := range collectives.Algorithms(o) {
		if a.Fits(&p) != nil || !s.wants(a) {
			continue
		}
		if err := f(p, a, a == chosen); err != nil {
			return err
		}
	}
	return nil
}

func (s *Sweep) wants(a *collectives.Algorithm) bool {
	for _, name := range s.Only {
		if name == a.Name {
			return true
		}
	}
	return len(s.Only) == 0
}

// tooLong is why a call with so many messages is past the limit.
func (s *Sweep) tooLong(work int) error {
	if s.Limit > 0 && work > s.Limit {
		return fmt.Errorf("%d messages, more than %d", work, s.Limit)
	}
	return nil
}

// equalCounts gives the forms with counts for each rank the same for all.
func equalCounts(o collectives.Operation, p *collectives.Params) {
	switch o {
	case collectives.Gatherv, collectives.Scatterv, collectives.Allgatherv, collectives.Alltoallv,
		collectives.Alltoallw, collectives.ReduceScatter:
	default:
		return
	}
	counts := make([]int64, p.Size)
	for i := range counts {
		counts[i] = p.Count
	}
	switch o {
	case collectives.Gatherv, collectives.Allgatherv:
		p.OutCounts = counts
	case collectives.Scatterv, collectives.ReduceScatter:
		p.InCounts = counts
	default:
		p.InCounts, p.OutCounts = counts, counts
	}
}
