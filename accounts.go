package mpi

import (
	"github.com/gorun-mpi/mpi/internal/join"
	"github.com/gorun-mpi/mpi/internal/standstill"
)

// numberOf is the number of this process for a user of gorun: its rank in the world that gorun has started, or the
// origin of the place that it has. met is the communicator in which it takes a place, or the result of Parent, or nil.
func numberOf(m *join.Member, met *Comm) int {
	if met != nil && !met.IsInter() {
		if all := met.origins(); all != nil {
			return all[met.group.Rank]
		}
	}
	return m.Rank
}

// accountable are the worlds of whose ranks this one can give account: the world of Init, and worlds of Replace by
// their origins. The last one is the newest.
func (b *bridges) accountable(m *join.Member, names standstill.Names) []standstill.World {
	all := []standstill.World{{Engine: m.Engine, Names: names}}
	for _, j := range b.list() {
		if j.origins != nil {
			all = append(all, standstill.World{Engine: j.member.Engine, Names: j.world.group.Numbers.Describe, Name: j.name,
				Ranks: j.origins})
		}
	}
	return all
}
