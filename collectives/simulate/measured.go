package simulate

import (
	"fmt"

	"github.com/gorun-mpi/mpi/collectives"
)

// Measured is what a benchmark has found of one kind of call.
type Measured struct {
	Algorithm *collectives.Algorithm
	// Between is the barrier that ranks enter between two calls, outside of the time of a call; nil: they enter no
	// barrier.
	Between *collectives.Algorithm
	// Alone says that Seconds is from a start at rest until the last rank is done. Otherwise calls follow each other,
	// and it is the mean over the ranks of what one takes.
	Alone   bool
	Ranks   int
	PerHost int
	Bytes   int64 // OSU's: what one rank has for one other, or for all where they get the same
	Seconds float64
}

// Names returns the names of the operation and of the algorithm, also for a message of benchmarks/latency, which is
// neither.
func (m *Measured) Names() (operation, algorithm string) {
	if m.Alone {
		return "latency", "message"
	}
	return m.Algorithm.Operation.String(), m.Algorithm.Name
}

// mostRanks and mostBytes bound what is simulated of a measurement that was read from a file.
const (
	mostRanks = 4096
	mostBytes = 1 << 40
	// mostWork bounds the messages of one call.
	mostWork = 1 << 20
	// repeats is how many calls are simulated where calls follow each other.
	repeats = 4
)

// check says what is impossible about a measurement.
func (m *Measured) check() error {
	switch {
	case m.Ranks < 2 || m.Ranks > mostRanks:
		return fmt.Errorf("%d ranks; a comparison takes from 2 to %d", m.Ranks, mostRanks)
	case m.PerHost < 1 || m.PerHost > m.Ranks:
		return fmt.Errorf("%d ranks per host of %d", m.PerHost, m.Ranks)
	case m.Bytes < 0 || m.Bytes > mostBytes:
		return fmt.Errorf("%d bytes; a comparison takes from 0 to %d", m.Bytes, int64(mostBytes))
	case !(m.Seconds > 0 && m.Seconds < 1e6):
		return fmt.Errorf("a time of %v s", m.Seconds)
	}
	if err := unsimulated(m.Algorithm.Operation); err != nil {
		return err
	}
	j := m.job(&Cluster)
	if err := j.Algorithm.Fits(&j.Params); err != nil {
		return err
	}
	if work := j.work(); work > mostWork {
		return fmt.Errorf("about %d messages; a comparison takes %d at most", work, mostWork)
	}
	return nil
}

// job is the simulation of what was measured.
func (m *Measured) job(model *Model) *Job {
	j := &Job{Algorithm: m.Algorithm, Model: model,
		Params: measuredParams(m.Algorithm.Operation, m.Ranks, m.PerHost, m.Bytes)}
	if !m.Alone {
		j.Repeat, j.Between = repeats, m.Between
	}
	return j
}

// measuredParams are those of a benchmark's call. Reductions are of float64.
func measuredParams(o collectives.Operation, ranks, perHost int, bytes int64) collectives.Params {
	p := collectives.Params{Size: ranks, Count: bytes, ElemSize: 1, Commutative: true,
		Hosts: collectives.Blocks{Ranks: ranks, PerHost: perHost}}
	if o.Facts().Reduces {
		p.ElemSize, p.Count = 8, bytes/8
	}
	if o != collectives.ReduceScatter {
		equalCounts(o, &p)
		return p
	}
	for i := range ranks {
		p.InCounts = append(p.InCounts, p.Count*int64(i+1)/int64(ranks)-p.Count*int64(i)/int64(ranks))
	}
	return p
}

// Predict is the time that a model gives for what was measured.
func (m *Measured) Predict(model *Model) (seconds float64, err error) {
	r, err := m.job(model).Run()
	if m.Alone {
		return r.Seconds, err
	}
	return r.Mean, err
}
