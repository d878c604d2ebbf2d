package main

import "github.com/gorun-mpi/mpi"

// grid is how the cells are divided: each rank has some rows of them.
type grid struct {
	world       *mpi.Comm
	cells       int // along a side
	first, rows int // this rank's rows, and the first one's place in the grid
	up, down    int // the neighbours; ProcNull at the edge of the grid, where messages go nowhere
}

func newGrid(world *mpi.Comm, cells int) *grid {
	rank, size := world.Rank(), world.Size()
	g := &grid{world: world, cells: cells, up: rank - 1, down: rank + 1}
	g.first = cells * rank / size
	g.rows = cells*(rank+1)/size - g.first
	if rank == 0 {
		g.up = mpi.ProcNull
	}
	if rank == size-1 {
		g.down = mpi.ProcNull
	}
	return g
}

// vector has an element for each of this rank's cells, and a row of the neighbour's above and below them: row 0 and row
// rows+1. Beyond the edge of the grid these are zero.
func (g *grid) vector() []float64 { return make([]float64, (g.rows+2)*g.cells) }

func (g *grid) row(v []float64, r int) []float64 { return v[r*g.cells : (r+1)*g.cells] }

// multiply sets product to the matrix times v.
func (g *grid) multiply(product, v []float64) error {
	if err := g.exchange(v); err != nil {
		return err
	}
	for r := 1; r <= g.rows; r++ {
		above, here, below, to := g.row(v, r-1), g.row(v, r), g.row(v, r+1), g.row(product, r)
		for c := range to {
			sum := 4*here[c] - above[c] - below[c]
			if c > 0 {
				sum -= here[c-1]
			}
			if c < len(to)-1 {
				sum -= here[c+1]
			}
			to[c] = sum
		}
	}
	return nil
}

// exchange brings the neighbours' nearest rows.
func (g *grid) exchange(v []float64) error {
	_, err := mpi.Sendrecv(g.world, g.row(v, 1), g.up, upTag, g.row(v, g.rows+1), g.down, upTag)
	if err != nil {
		return err
	}
	_, err = mpi.Sendrecv(g.world, g.row(v, g.rows), g.down, downTag, g.row(v, 0), g.up, downTag)
	return err
}

// dots is the scalar product of each pair of vectors, over all ranks.
func (g *grid) dots(pairs ...[2][]float64) ([]float64, error) {
	sums := make([]float64, len(pairs))
	for i, p := range pairs {
		for k := g.cells; k < (g.rows+1)*g.cells; k++ {
			sums[i] += p[0][k] * p[1][k]
		}
	}
	return sums, mpi.Allreduce(g.world, nil, sums, mpi.Sum)
}
