package coll

import (
	"cmp"
	"slices"
	"sync"

	"github.com/gorun-mpi/mpi/collectives"
)

// Chosen is how a rank makes calls of an operation with blocks of Least to Most bytes. Calls whose blocks have lengths
// of their own count as 0 bytes.
type Chosen struct {
	Operation   collectives.Operation
	Algorithms  string // by name; several where the board decides at the call
	Least, Most int64
}

// choices are what the plans of a rank have chosen. A plan that is found again is not counted again.
type choices struct {
	mu   sync.Mutex
	made map[choice]*Chosen
}

type choice struct {
	operation        collectives.Operation
	algorithm, roomy *collectives.Algorithm
	ways             boardWays
	unattended       bool
}

// add notes a plan that has been made for a call in way w.
func (c *choices) add(p *Plan, w Way) {
	k, bytes := choice{p.Operation, p.algorithm, p.roomy, p.ways, p.unattended}, p.Count*p.ElemSize
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.made[k]
	if s == nil {
		if c.made == nil {
			c.made = map[choice]*Chosen{}
		}
		s = &Chosen{p.Operation, p.names(w), bytes, bytes}
		c.made[k] = s
	}
	s.Least, s.Most = min(s.Least, bytes), max(s.Most, bytes)
}

// Chosen returns how this rank has made its collective calls, on all communicators, in the order of the operations.
func (s *Setup) Chosen() []Chosen {
	s.choices.mu.Lock()
	defer s.choices.mu.Unlock()
	var all []Chosen
	for _, c := range s.choices.made {
		all = append(all, *c)
	}
	slices.SortFunc(all, func(a, b Chosen) int {
		return cmp.Or(cmp.Compare(a.Operation, b.Operation), cmp.Compare(a.Least, b.Least),
			cmp.Compare(a.Algorithms, b.Algorithms))
	})
	return all
}
