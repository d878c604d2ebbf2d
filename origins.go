package mpi

import "github.com/gorun-mpi/mpi/internal/join"

// gorun starts a rank that takes a place on the host of the dead rank. It knows processes by their ranks in the world
// that it has started, and the library knows them by their numbers in the world of the last Replace. So each rank
// remembers for such a world which rank of the first world has had the place of each number: its origin.

// origins are the origins of the ranks of c. nil: they are not known, as of ranks that Spawn has started.
func (c *Comm) origins() []int {
	of := process.bridges.origins(c.group.Engine)
	if m := process.member.Load(); of == nil && (m == nil || m.Engine != c.group.Engine) {
		return nil
	}
	list := make([]int, c.group.Size)
	for rank := range list {
		if list[rank] = c.group.ToWorld(rank); of != nil {
			list[rank] = of[list[rank]]
		}
	}
	return list
}

// keepOrigins remembers the origins of the world of a Replace. number is that of a place.
func keepOrigins(w *Comm, p *join.Port, number []int) {
	if p.Origins == nil {
		return
	}
	of := make([]int, p.Size)
	for place, n := range number {
		of[n] = p.Origins[place]
	}
	process.bridges.setOrigins(w, of)
}
