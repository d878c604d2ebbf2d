package main

import (
	"math"
	"time"

	"github.com/gorun-mpi/mpi"
)

const (
	upTag = iota + 1 // a row that travels to the rank above
	downTag
)

// block is one rank's rows of the plate, each with a cell of the rim at both ends, and a halo row above and below
// them: the neighbour's nearest row, or the rim. Row 0 is the upper halo, rows 1 to rows are this rank's.
type block struct {
	world         *mpi.Comm
	cells         int // along a side of the plate
	rows, first   int // this rank's rows, and the first one's place in the plate
	up, down      int // the neighbours; ProcNull at the edge of the plate, where messages go nowhere
	now, next     []float64
	kept          []spot
	requests      [4]*mpi.Request
	communicating time.Duration
}

// spot is a cell that keeps its temperature.
type spot struct {
	at          int
	temperature float64
}

// disc is where the plate is heated or cooled, in shares of its side.
type disc struct{ x, y, radius, temperature float64 }

var discs = []disc{
	{0.28, 0.70, 0.080, 1.00},
	{0.72, 0.78, 0.050, 0.80},
	{0.62, 0.34, 0.105, 0.90},
	{0.20, 0.27, 0.055, 0.70},
	{0.50, 0.62, 0.030, 0.95},
	{0.42, 0.47, 0.045, 0.00},
	{0.85, 0.55, 0.040, 0.50},
	{0.76, 0.60, 0.030, 0.00},
	{0.38, 0.16, 0.030, 0.60},
}

func newBlock(world *mpi.Comm, cells int) *block {
	rank, size := world.Rank(), world.Size()
	b := &block{world: world, cells: cells, up: rank - 1, down: rank + 1}
	b.first, b.rows = share(cells, rank, size)
	if rank == 0 {
		b.up = mpi.ProcNull
	}
	if rank == size-1 {
		b.down = mpi.ProcNull
	}
	b.now = make([]float64, (b.rows+2)*(cells+2))
	b.next = make([]float64, len(b.now))
	for r := 1; r <= b.rows; r++ {
		for c := 1; c <= cells; c++ {
			if t, ok := keptAt(float64(c)/float64(cells), float64(b.first+r)/float64(cells)); ok {
				b.kept = append(b.kept, spot{r*(cells+2) + c, t})
			}
		}
	}
	b.keep(b.now)
	return b
}

// share divides n rows over the ranks as evenly as it goes.
func share(n, rank, size int) (first, rows int) {
	first = n * rank / size
	return first, n*(rank+1)/size - first
}

func keptAt(x, y float64) (temperature float64, ok bool) {
	for _, d := range discs {
		if math.Hypot(x-d.x, y-d.y) <= d.radius {
			return d.temperature, true
		}
	}
	return 0, false
}

func (b *block) keep(plate []float64) {
	for _, s := range b.kept {
		plate[s.at] = s.temperature
	}
}

func (b *block) row(plate []float64, r int) []float64 {
	width := b.cells + 2
	return plate[r*width : (r+1)*width]
}

// step computes the next temperatures. The rows that need no halo are computed while the halos travel.
func (b *block) step() error {
	if err := b.startExchange(); err != nil {
		return err
	}
	for r := 2; r < b.rows; r++ {
		b.spread(r)
	}
	if err := b.endExchange(); err != nil {
		return err
	}
	b.spread(1)
	if b.rows > 1 {
		b.spread(b.rows)
	}
	b.keep(b.next)
	b.now, b.next = b.next, b.now
	return nil
}

// startExchange posts both halos and sends both edges. Until endExchange the halo rows belong to the library.
func (b *block) startExchange() (err error) {
	defer b.clock(time.Now())
	post := func(i int, request *mpi.Request, failed error) {
		b.requests[i] = request
		if err == nil {
			err = failed
		}
	}
	receive := func(i, row, from, tag int) {
		r, failed := mpi.Irecv(b.world, b.row(b.now, row), from, tag)
		post(i, r, failed)
	}
	send := func(i, row, to, tag int) {
		r, failed := mpi.Isend(b.world, b.row(b.now, row), to, tag)
		post(i, r, failed)
	}
	receive(0, 0, b.up, downTag)
	receive(1, b.rows+1, b.down, upTag)
	send(2, 1, b.up, upTag)
	send(3, b.rows, b.down, downTag)
	return err
}

func (b *block) endExchange() error {
	defer b.clock(time.Now())
	return mpi.WaitAll(b.requests[:]...)
}

func (b *block) clock(start time.Time) { b.communicating += time.Since(start) }

// spread is one explicit step of the heat equation for one row, with the largest step that is stable: each cell
// becomes the mean of its four neighbours.
func (b *block) spread(r int) {
	above, here, below := b.row(b.now, r-1), b.row(b.now, r), b.row(b.now, r+1)
	to := b.row(b.next, r)
	// Slices of one length spare the compiler's bounds checks in the loop.
	n := len(here)
	above, below, to = above[:n], below[:n], to[:n]
	for c := 1; c < n-1; c++ {
		to[c] = 0.25 * (above[c] + below[c] + here[c-1] + here[c+1])
	}
}

// residual is the greatest change of a cell in the last step.
func (b *block) residual() float64 {
	greatest := 0.0
	for r := 1; r <= b.rows; r++ {
		before, after := b.row(b.next, r), b.row(b.now, r)
		for c := range after {
			greatest = max(greatest, math.Abs(after[c]-before[c]))
		}
	}
	return greatest
}

// gather brings all rows to rank 0, without halos and rim.
func (b *block) gather() ([]float64, error) {
	mine := make([]float64, 0, b.rows*b.cells)
	for r := 1; r <= b.rows; r++ {
		mine = append(mine, b.row(b.now, r)[1:b.cells+1]...)
	}
	if b.world.Rank() != 0 {
		return nil, mpi.Gatherv(b.world, mine, nil, 0)
	}
	plate := make([]float64, b.cells*b.cells)
	var blocks [][]float64
	for rank := range b.world.Size() {
		first, rows := share(b.cells, rank, b.world.Size())
		blocks = append(blocks, plate[first*b.cells:(first+rows)*b.cells])
	}
	return plate, mpi.Gatherv(b.world, mine, blocks, 0)
}
