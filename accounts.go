package mpi

import (
	"github.com/gorun-mpi/mpi/internal/join"
	"github.com/gorun-mpi/mpi/internal/standstill"
)

// numberOf is the number of this process for a user of gorun: its rank in the world that gorun has started, or the
// origin of the place that it has. met is the communicator in which it takes a place, or that of Parent, or nil.
func numberOf(m *join.Member, met *Comm) int {
	if met != nil && !met.IsInter() {
		if all := met.origins(); all != nil {
			return all[met.group.Rank]
		}
	}
	return m.Rank
}

// accountable are the worlds of Replace, of whose ranks this one can give account by their origins.
func (b *bridges) accountable() (all []standstill.World) {
	for _, j := range b.list() {
		if j.origins != nil {
			all = append(all, standstill.World{Engine: j.member.Engine, Names: j.world.group.Numbers.Describe,
				Ranks: j.origins})
		}
	}
	return all
}
