package main

import (
	"github.com/gorun-mpi/mpi"
	"github.com/gorun-mpi/mpi/benchmarks/harness"
	"github.com/gorun-mpi/mpi/benchmarks/internal/bench"
)

// buffers are those of one rank, at the lengths of one call.
type buffers struct {
	world      *mpi.Comm
	ring       *mpi.Comm // of neighbours; nil: no operation has them
	rank, size int
	o          *operation

	// Of what moves bytes: all of a buffer, and its blocks. A broadcast has recv alone.
	send, recv     []byte
	sent, received [][]byte
	to, from       []mpi.Layout // of the same blocks
	// Of reductions. counts are those of reduce_scatter.
	in, out []float64
	counts  []int

	bytes   [2][]byte    // send and recv are their beginnings
	numbers [2][]float64 // in and out

	device deviceBuffers // in place of those, with -d; those have the patterns then
}

func newBuffers(j *bench.Job, where int, chosen []form) (*buffers, error) {
	b := &buffers{world: j.World, rank: j.Rank, size: j.Ranks, counts: make([]int, j.Ranks)}
	most := int(j.Options.MaxSize) * mostBlocks(j.Ranks)
	var err error
	for _, o := range chosen {
		if o.neighbors && b.ring == nil {
			if b.ring, err = j.World.Cart([]int{j.Ranks}, []bool{true}, false); err != nil {
				return nil, err
			}
		}
		for i := range 2 {
			switch {
			case o.reduces && b.numbers[i] == nil:
				b.numbers[i], err = bench.Memory[float64](j, most/elementSize)
			case !o.reduces && b.bytes[i] == nil:
				b.bytes[i], err = j.Memory(most)
			}
			if err != nil {
				return nil, err
			}
		}
	}
	return b, b.device.make(j, where, b)
}

// mostBlocks is how many blocks a buffer has at most: one for each rank, or neighbour.
func mostBlocks(ranks int) int { return max(ranks, neighbors) }

// resize makes the lengths those of an operation of so many bytes.
func (b *buffers) resize(o *operation, bytes int) {
	defer b.device.resize(b)
	b.o = o
	b.send, b.sent, b.recv, b.received, b.in, b.out = nil, nil, nil, nil, nil, nil
	b.to, b.from = nil, nil
	if o.named("barrier") {
		bytes = 0
	}
	if o.reduces {
		b.resizeVectors(bytes / elementSize)
		return
	}
	b.send, b.sent = blocks(b.bytes[0], b.blocksOf(o.eachSent), bytes)
	b.recv, b.received = blocks(b.bytes[1], b.blocksOf(o.eachRecv), bytes)
	for i := 0; o.layouts && i < len(b.sent); i++ {
		l := mpi.HIndexed([]int{bytes}, []int{i * bytes}, mpi.Of[byte]())
		b.to, b.from = append(b.to, l), append(b.from, l)
	}
}

func (b *buffers) blocksOf(each bool) int {
	switch {
	case !each:
		return 1
	case b.o.neighbors:
		return neighbors
	}
	return b.size
}

func blocks(all []byte, n, bytes int) (used []byte, list [][]byte) {
	for i := range n {
		list = append(list, all[i*bytes:(i+1)*bytes:(i+1)*bytes])
	}
	return all[: n*bytes : n*bytes], list
}

func (b *buffers) resizeVectors(n int) {
	for i := range b.counts {
		b.counts[i] = (i+1)*n/b.size - i*n/b.size
	}
	b.in, b.out = b.numbers[0][:n*b.blocksOf(b.o.eachSent)], b.numbers[1][:n]
	if b.o.named("reduce_scatter") {
		b.out = b.out[:b.counts[b.rank]]
	}
}

// fill writes what a rank gives in a round and clears what it gets.
func (b *buffers) fill(round int) {
	clear(b.recv)
	clear(b.out)
	for k := range b.in {
		b.in[k] = number(b.rank, round, k)
	}
	for i, block := range b.sent {
		harness.Fill(block, round, mark(b.rank, i))
	}
	if b.o.named("bcast") && b.rank == root {
		harness.Fill(b.recv, round, mark(root, 0))
	}
}

// wrong counts the buffers that do not hold what the round gives this rank.
func (b *buffers) wrong(round int) (wrong int64) {
	if b.rank != root && (b.o.named("gather") || b.o.named("gatherv") || b.o.named("reduce")) {
		return 0
	}
	to := 0 // the block of the sender
	if b.o.eachSent {
		to = b.rank
	}
	for i, block := range b.received { // i is the sender, where there is one block the root
		from := i
		if b.o.neighbors {
			from = (b.rank + 2*i - 1 + b.size) % b.size
			if b.o.eachSent { // what comes from the rank before this one is what that has for the one after it
				to = 1 - i
			}
		}
		if !harness.Check(block, round, mark(from, to)) {
			wrong++
		}
	}
	if b.o.reduces && !b.reduced(round) {
		wrong++
	}
	return wrong
}

// reduced reports whether out is the sum that it should be.
func (b *buffers) reduced(round int) bool {
	low, ranks := 0, b.size // out begins with the element low of the sum of so many ranks
	switch b.o.name {
	case "reduce_scatter":
		for _, n := range b.counts[:b.rank] {
			low += n
		}
	case "reduce_scatter_block":
		low = b.rank * len(b.out)
	case "scan":
		ranks = b.rank + 1
	case "exscan":
		ranks = b.rank // rank 0 gets nothing, and has cleared it
	}
	for k, got := range b.out {
		sum := 0.0
		for rank := range ranks {
			sum += number(rank, round, low+k)
		}
		if got != sum {
			return false
		}
	}
	return true
}

// mark differs for each block of each rank.
func mark(from, to int) int { return from<<20 + to }

// number is an element of a rank's vector. All sums of them are exact.
func number(rank, round, k int) float64 { return float64((rank*31 + round*7 + k) % 1024) }
