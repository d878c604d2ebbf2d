package mpi

import (
	"github.com/gorun-mpi/mpi/collectives"
	"github.com/gorun-mpi/mpi/internal/mpierr"
)

// The calls that move data with a Layout for each block. A block that is one run is sent from where it lies, and
// received there. Others are packed before the schedule runs, and unpacked when it has. The schedule counts bytes, so
// what one rank calls with a layout all ranks do.

// scattered is a block of a call that is not one run.
type scattered struct {
	as           *derived
	base, packed []byte
	load, store  bool // packed before, unpacked after
}

// place adds a block to a space of the call. load: the schedule may read it; store: it writes all of it.
func (p *collPlan) place(s collectives.Space, base []byte, l Layout, load, store bool) {
	block, ok := l.is.run(base)
	if !ok {
		block = aligned(int(l.Size()))
		p.scattered = append(p.scattered, scattered{l.is, base, block, load, store})
	}
	p.spaces[s] = append(p.spaces[s], block)
}

// pack and unpack bring the blocks that are scattered to where the schedule has them, and back.
func (p *collPlan) pack() {
	for i := range p.scattered {
		if b := &p.scattered[i]; b.load {
			b.as.mustMove(b.as.Type.Pack(b.packed, b.base, 0, 0))
		}
	}
}

func (p *collPlan) unpack() {
	for i := range p.scattered {
		if b := &p.scattered[i]; b.store {
			b.as.mustMove(b.as.Type.Unpack(b.packed, b.base, 0, 0))
		}
	}
}

// inBytes begins the plan of a call with layouts.
func (c *Comm) inBytes(w way, key planKey, in, out []int64) *collPlan {
	key.elemSize, key.commutative = 1, true
	p := planned[byte](c, w, key, in, out)
	if c.setup.Check {
		p.typeName = "layouts"
	}
	for s := range p.spaces[:collectives.Tmp] {
		p.spaces[s] = p.spaces[s][:0]
	}
	return p
}

// checkHolder is checkColl where layouts name elements of a T, which may hold pointers too.
func checkHolder[T any](c *Comm, op string) error {
	if err := c.intra(op); err != nil {
		return err
	}
	if err := holdsNumbers[T](); err != nil {
		return c.collError(op, ErrType, "%w", err)
	}
	return nil
}

// checkBlock is checkLayout of a call's only block.
func checkBlock[T any](c *Comm, op string, base []T, l Layout, write bool) error {
	if err := checkLayout(op, base, l, write); err != nil {
		return mpierr.On(err, c.Name())
	}
	return nil
}

// checkBlocks checks a layout for each of n others, and returns their sizes.
func checkBlocks[T any](c *Comm, op, name string, base []T, blocks []Layout, n int, write bool) ([]int64, error) {
	if len(blocks) != n {
		return nil, c.lengthError(op, "%s has %d layouts; it must have one for each of %d ranks, which may be empty", name,
			len(blocks), n)
	}
	sizes := make([]int64, n)
	for i, l := range blocks {
		if err := checkLayout(op, base, l, write); err != nil {
			return nil, c.collError(op, err.Class, "%s[%d]: %w", name, i, err.Err)
		}
		sizes[i] = l.Size()
	}
	return sizes, nil
}

// ownBlock reports that a rank's block for itself has two sizes.
func (c *Comm) ownBlock(op string, send, recv int64) error {
	if send != recv {
		return c.lengthError(op, "the caller's block for itself has %d bytes in send and %d in recv; it is copied, and both "+
			"have one size", send, recv)
	}
	return nil
}

// BcastLayout is Bcast of the elements that l names in buf; §6.4. Layouts may differ between ranks, the sequence of
// elements that they name is the same. All ranks call BcastLayout, also one that has the elements as a slice: its
// layout is Contiguous(len(buf), Of[T]()).
func BcastLayout[T any](c *Comm, buf []T, l Layout, root int) error {
	return c.perform(planBcastLayout(c, blocking, buf, l, root))
}

func planBcastLayout[T any](c *Comm, w way, buf []T, l Layout, root int) (*collPlan, error) {
	op := w.named("BcastLayout")
	if err := checkHolder[T](c, op); err != nil {
		return nil, err
	}
	if err := c.isRoot(op, root); err != nil {
		return nil, err
	}
	if err := checkBlock(c, op, buf, l, c.group.Rank != root); err != nil {
		return nil, err
	}
	p := c.inBytes(w, planKey{operation: collectives.Bcast, root: root, count: l.Size()}, nil, nil)
	p.place(collectives.Out, bytesOf(buf), l, c.group.Rank == root, c.group.Rank != root)
	return p, nil
}

// Gatherw is Gatherv with a layout of each block: that of send is what l names in it, that of rank i is brought to
// where blocks[i] says in recv of rank root; §6.5. blocks and recv of other ranks are not used. The root's send may be
// nil: its block is in recv already.
func Gatherw[S, R any](c *Comm, send []S, l Layout, recv []R, blocks []Layout, root int) error {
	return c.perform(planGatherw(c, blocking, send, l, recv, blocks, root))
}

func planGatherw[S, R any](c *Comm, w way, send []S, l Layout, recv []R, blocks []Layout, root int) (*collPlan, error) {
	op := w.named("Gatherw")
	if err := checkHolder[R](c, op); err != nil {
		return nil, err
	}
	if err := c.isRoot(op, root); err != nil {
		return nil, err
	}
	key := planKey{operation: collectives.Gatherv, root: root, inPlace: c.group.Rank == root && send == nil}
	if !key.inPlace {
		if err := checkBlock(c, op, send, l, false); err != nil {
			return nil, err
		}
		key.count = l.Size()
	}
	var out []int64
	if c.group.Rank == root {
		var err error
		if out, err = checkBlocks(c, op, "blocks", recv, blocks, c.group.Size, true); err != nil {
			return nil, err
		}
		if key.inPlace {
			key.count = out[root]
		} else if err := c.ownBlock(op, key.count, out[root]); err != nil {
			return nil, err
		}
	}
	p := c.inBytes(w, key, nil, out)
	if !key.inPlace {
		p.place(collectives.In, bytesOf(send), l, true, false)
	}
	for i := range out {
		p.place(collectives.Out, bytesOf(recv), blocks[i], key.inPlace && i == root, true)
	}
	return c.apartBlocks(op, p)
}

// Scatterw is Scatterv with a layout of each block: rank i gets what blocks[i] names in send of rank root to where l
// says in its recv; §6.6. blocks and send of other ranks are not used. The root's recv may be nil: its block stays.
func Scatterw[S, R any](c *Comm, send []S, blocks []Layout, recv []R, l Layout, root int) error {
	return c.perform(planScatterw(c, blocking, send, blocks, recv, l, root))
}

func planScatterw[S, R any](c *Comm, w way, send []S, blocks []Layout, recv []R, l Layout, root int) (
	*collPlan, error,
) {
	op := w.named("Scatterw")
	if err := checkHolder[S](c, op); err != nil {
		return nil, err
	}
	if err := c.isRoot(op, root); err != nil {
		return nil, err
	}
	key := planKey{operation: collectives.Scatterv, root: root, inPlace: c.group.Rank == root && recv == nil}
	if !key.inPlace {
		if err := checkBlock(c, op, recv, l, true); err != nil {
			return nil, err
		}
		key.count = l.Size()
	}
	var in []int64
	if c.group.Rank == root {
		var err error
		if in, err = checkBlocks(c, op, "blocks", send, blocks, c.group.Size, false); err != nil {
			return nil, err
		}
		if key.inPlace {
			key.count = in[root]
		} else if err := c.ownBlock(op, in[root], key.count); err != nil {
			return nil, err
		}
	}
	p := c.inBytes(w, key, in, nil)
	for i := range in {
		p.place(collectives.In, bytesOf(send), blocks[i], true, false)
	}
	if !key.inPlace {
		p.place(collectives.Out, bytesOf(recv), l, false, true)
	}
	return c.apartBlocks(op, p)
}

// Allgatherw is Gatherw to all ranks; §6.7. send may be nil: the rank's block is in recv already. All ranks give blocks
// of the same sizes.
func Allgatherw[S, R any](c *Comm, send []S, l Layout, recv []R, blocks []Layout) error {
	return c.perform(planAllgatherw(c, blocking, send, l, recv, blocks))
}

func planAllgatherw[S, R any](c *Comm, w way, send []S, l Layout, recv []R, blocks []Layout) (*collPlan, error) {
	op := w.named("Allgatherw")
	if err := checkHolder[R](c, op); err != nil {
		return nil, err
	}
	out, err := checkBlocks(c, op, "blocks", recv, blocks, c.group.Size, true)
	if err != nil {
		return nil, err
	}
	key := planKey{operation: collectives.Allgatherv, inPlace: send == nil}
	if !key.inPlace {
		if err := checkBlock(c, op, send, l, false); err != nil {
			return nil, err
		}
		if err := c.ownBlock(op, l.Size(), out[c.group.Rank]); err != nil {
			return nil, err
		}
	}
	p := c.inBytes(w, key, nil, out)
	if !key.inPlace {
		p.place(collectives.In, bytesOf(send), l, true, false)
	}
	for i := range out {
		p.place(collectives.Out, bytesOf(recv), blocks[i], key.inPlace && i == c.group.Rank, true)
	}
	return c.apartBlocks(op, p)
}

// Alltoallw is Alltoallv with a layout of each block: what to[i] names in send goes to rank i, and what rank i has for
// this one comes to where from[i] says in recv; §6.8. What is sent is the sequence of elements that is received; the
// two layouts may differ. send may be nil, at all ranks: what from names in recv is sent, and replaced.
func Alltoallw[S, R any](c *Comm, send []S, to []Layout, recv []R, from []Layout) error {
	return c.perform(planAlltoallw(c, blocking, send, to, recv, from))
}

func planAlltoallw[S, R any](c *Comm, w way, send []S, to []Layout, recv []R, from []Layout) (*collPlan, error) {
	op := w.call(collectives.Alltoallw)
	if err := checkHolder[R](c, op); err != nil {
		return nil, err
	}
	out, err := checkBlocks(c, op, "from", recv, from, c.group.Size, true)
	if err != nil {
		return nil, err
	}
	key := planKey{operation: collectives.Alltoallw, inPlace: send == nil}
	in := out
	if !key.inPlace {
		if in, err = checkBlocks(c, op, "to", send, to, c.group.Size, false); err != nil {
			return nil, err
		}
		if err := c.ownBlock(op, in[c.group.Rank], out[c.group.Rank]); err != nil {
			return nil, err
		}
	}
	p := c.inBytes(w, key, in, out)
	if !key.inPlace {
		for i := range in {
			p.place(collectives.In, bytesOf(send), to[i], true, false)
		}
	}
	for i := range out {
		p.place(collectives.Out, bytesOf(recv), from[i], key.inPlace, true)
	}
	return c.apartBlocks(op, p)
}

// NeighborAlltoallw is NeighborAlltoallv with a layout of each block: what to[i] names in send goes to neighbour i of
// those that the caller sends to, and what comes from neighbour i of those that it receives from goes to where from[i]
// says in recv; §8.6.4. So the border of a part of a grid needs no buffer.
func NeighborAlltoallw[S, R any](c *Comm, send []S, to []Layout, recv []R, from []Layout) error {
	return c.perform(planNeighborAlltoallw(c, blocking, send, to, recv, from))
}

func planNeighborAlltoallw[S, R any](c *Comm, w way, send []S, to []Layout, recv []R, from []Layout) (
	*collPlan, error,
) {
	op := w.call(collectives.NeighborAlltoallw)
	if err := checkHolder[R](c, op); err != nil {
		return nil, err
	}
	nin, nout, err := c.neighborCounts(op)
	if err != nil {
		return nil, err
	}
	out, err := checkBlocks(c, op, "from", recv, from, nin, true)
	if err != nil {
		return nil, err
	}
	in, err := checkBlocks(c, op, "to", send, to, nout, false)
	if err != nil {
		return nil, err
	}
	p := c.inBytes(w, planKey{operation: collectives.NeighborAlltoallw}, in, out)
	for i := range in {
		p.place(collectives.In, bytesOf(send), to[i], true, false)
	}
	sources, _ := c.topo.neighbours(c.group.Rank)
	for i := range out {
		p.place(collectives.Out, bytesOf(recv), from[i], false, sources[i] >= 0)
	}
	return c.apartBlocks(op, p)
}

// IbcastLayout starts a BcastLayout; §6.12.2.
func IbcastLayout[T any](c *Comm, buf []T, l Layout, root int) (*Request, error) {
	return c.start(planBcastLayout(c, nonblocking, buf, l, root))
}

// BcastLayoutInit makes a persistent BcastLayout; §6.13.2.
func BcastLayoutInit[T any](c *Comm, buf []T, l Layout, root int) (*Request, error) {
	return c.keep(planBcastLayout(c, persistent, buf, l, root))
}

// Igatherw starts a Gatherw; §6.12.3.
func Igatherw[S, R any](c *Comm, send []S, l Layout, recv []R, blocks []Layout, root int) (*Request, error) {
	return c.start(planGatherw(c, nonblocking, send, l, recv, blocks, root))
}

// GatherwInit makes a persistent Gatherw; §6.13.3.
func GatherwInit[S, R any](c *Comm, send []S, l Layout, recv []R, blocks []Layout, root int) (*Request, error) {
	return c.keep(planGatherw(c, persistent, send, l, recv, blocks, root))
}

// Iscatterw starts a Scatterw; §6.12.4.
func Iscatterw[S, R any](c *Comm, send []S, blocks []Layout, recv []R, l Layout, root int) (*Request, error) {
	return c.start(planScatterw(c, nonblocking, send, blocks, recv, l, root))
}

// ScatterwInit makes a persistent Scatterw; §6.13.4.
func ScatterwInit[S, R any](c *Comm, send []S, blocks []Layout, recv []R, l Layout, root int) (*Request, error) {
	return c.keep(planScatterw(c, persistent, send, blocks, recv, l, root))
}

// Iallgatherw starts an Allgatherw; §6.12.5.
func Iallgatherw[S, R any](c *Comm, send []S, l Layout, recv []R, blocks []Layout) (*Request, error) {
	return c.start(planAllgatherw(c, nonblocking, send, l, recv, blocks))
}

// AllgatherwInit makes a persistent Allgatherw; §6.13.5.
func AllgatherwInit[S, R any](c *Comm, send []S, l Layout, recv []R, blocks []Layout) (*Request, error) {
	return c.keep(planAllgatherw(c, persistent, send, l, recv, blocks))
}

// Ialltoallw starts an Alltoallw; §6.12.6.
func Ialltoallw[S, R any](c *Comm, send []S, to []Layout, recv []R, from []Layout) (*Request, error) {
	return c.start(planAlltoallw(c, nonblocking, send, to, recv, from))
}

// AlltoallwInit makes a persistent Alltoallw; §6.13.6.
func AlltoallwInit[S, R any](c *Comm, send []S, to []Layout, recv []R, from []Layout) (*Request, error) {
	return c.keep(planAlltoallw(c, persistent, send, to, recv, from))
}

// IneighborAlltoallw starts a NeighborAlltoallw; §8.7.2.
func IneighborAlltoallw[S, R any](c *Comm, send []S, to []Layout, recv []R, from []Layout) (*Request, error) {
	return c.start(planNeighborAlltoallw(c, nonblocking, send, to, recv, from))
}

// NeighborAlltoallwInit makes a persistent NeighborAlltoallw; §8.8.2.
func NeighborAlltoallwInit[S, R any](c *Comm, send []S, to []Layout, recv []R, from []Layout) (*Request, error) {
	return c.keep(planNeighborAlltoallw(c, persistent, send, to, recv, from))
}
