package mpi

import (
	"github.com/gorun-mpi/mpi/collectives"
	"github.com/gorun-mpi/mpi/internal/coll"
	"github.com/gorun-mpi/mpi/internal/mpierr"
)

// The calls that move data with a Layout for each block. A block that is one run is sent from where it lies, and
// received there. Others are packed before the schedule runs, and unpacked when it has. The schedule counts bytes, so
// what one rank calls with a layout all ranks do.

// addBlock adds the block that l names in base to a space of the call. load: the schedule may read it; store: it writes
// all of it.
func addBlock(p *coll.Plan, s collectives.Space, base []byte, l Layout, load, store bool) {
	if block, ok := l.is.run(base); ok {
		p.AddBlock(s, block)
		return
	}
	p.AddScattered(s, base, l.is, l.Size(), load, store)
}

// inBytes begins the plan of a call with layouts.
func (c *Comm) inBytes(w coll.Way, key coll.Key, in, out []int64) *coll.Plan {
	return c.inBytesOn(&c.group, w, key, in, out)
}

// inBytesOn is inBytes of a call that runs on g.
func (c *Comm) inBytesOn(g *coll.Group, w coll.Way, key coll.Key, in, out []int64) *coll.Plan {
	key.ElemSize, key.Commutative = 1, true
	p := planned[byte](g, w, key, in, out)
	if c.group.Setup.Check {
		p.TypeName = "layouts"
	}
	p.ClearSpace(collectives.In)
	p.ClearSpace(collectives.Out)
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

// BcastLayout is Bcast of the elements that l names in buf; §6.4. Layouts may differ between ranks, but they name the
// same sequence of elements. All ranks call BcastLayout; the layout of a whole slice is Contiguous(len(buf), Of[T]()).
func BcastLayout[T any](c *Comm, buf []T, l Layout, root int) error {
	return c.perform(planBcastLayout(c, coll.Blocking, buf, l, root))
}

func planBcastLayout[T any](c *Comm, w coll.Way, buf []T, l Layout, root int) (*coll.Plan, error) {
	if c.IsInter() {
		return planInterBcastLayout(c, w, buf, l, root)
	}
	op := w.Named("BcastLayout")
	if err := checkHolder[T](c, op); err != nil {
		return nil, err
	}
	if err := c.isRoot(op, root); err != nil {
		return nil, err
	}
	if err := checkBlock(c, op, buf, l, c.group.Rank != root); err != nil {
		return nil, err
	}
	p := c.inBytes(w, coll.Key{Operation: collectives.Bcast, Root: root, Count: l.Size()}, nil, nil)
	addBlock(p, collectives.Out, bytesOf(buf), l, c.group.Rank == root, c.group.Rank != root)
	return p, nil
}

// Gatherw is Gatherv with a layout for each block; §6.5. l names the elements that a rank sends from send. blocks[i]
// names the elements of the root's recv that receive rank i's block. Other ranks' blocks and recv are not used. The
// root's send may be nil: its block is then in recv already.
func Gatherw[S, R any](c *Comm, send []S, l Layout, recv []R, blocks []Layout, root int) error {
	return c.perform(planGatherw(c, coll.Blocking, send, l, recv, blocks, root))
}

func planGatherw[S, R any](c *Comm, w coll.Way, send []S, l Layout, recv []R, blocks []Layout, root int) (
	*coll.Plan, error,
) {
	if c.IsInter() {
		return planInterGatherw(c, w, send, l, recv, blocks, root)
	}
	op := w.Named("Gatherw")
	if err := checkHolder[R](c, op); err != nil {
		return nil, err
	}
	if err := c.isRoot(op, root); err != nil {
		return nil, err
	}
	key := coll.Key{Operation: collectives.Gatherv, Root: root, InPlace: c.group.Rank == root && send == nil}
	if !key.InPlace {
		if err := checkBlock(c, op, send, l, false); err != nil {
			return nil, err
		}
		key.Count = l.Size()
	}
	var out []int64
	if c.group.Rank == root {
		var err error
		if out, err = checkBlocks(c, op, "blocks", recv, blocks, c.group.Size, true); err != nil {
			return nil, err
		}
		if key.InPlace {
			key.Count = out[root]
		} else if err := c.ownBlock(op, key.Count, out[root]); err != nil {
			return nil, err
		}
	}
	p := c.inBytes(w, key, nil, out)
	if !key.InPlace {
		addBlock(p, collectives.In, bytesOf(send), l, true, false)
	}
	for i := range out {
		addBlock(p, collectives.Out, bytesOf(recv), blocks[i], key.InPlace && i == root, true)
	}
	return p.CheckBlocks(op)
}

// Scatterw is Scatterv with a layout for each block; §6.6. blocks[i] names the elements of the root's send for rank i,
// and l names the elements of that rank's recv that receive them. Other ranks' blocks and send are not used. The root's
// recv may be nil: its block then stays in send.
func Scatterw[S, R any](c *Comm, send []S, blocks []Layout, recv []R, l Layout, root int) error {
	return c.perform(planScatterw(c, coll.Blocking, send, blocks, recv, l, root))
}

func planScatterw[S, R any](c *Comm, w coll.Way, send []S, blocks []Layout, recv []R, l Layout, root int) (
	*coll.Plan, error,
) {
	if c.IsInter() {
		return planInterScatterw(c, w, send, blocks, recv, l, root)
	}
	op := w.Named("Scatterw")
	if err := checkHolder[S](c, op); err != nil {
		return nil, err
	}
	if err := c.isRoot(op, root); err != nil {
		return nil, err
	}
	key := coll.Key{Operation: collectives.Scatterv, Root: root, InPlace: c.group.Rank == root && recv == nil}
	if !key.InPlace {
		if err := checkBlock(c, op, recv, l, true); err != nil {
			return nil, err
		}
		key.Count = l.Size()
	}
	var in []int64
	if c.group.Rank == root {
		var err error
		if in, err = checkBlocks(c, op, "blocks", send, blocks, c.group.Size, false); err != nil {
			return nil, err
		}
		if key.InPlace {
			key.Count = in[root]
		} else if err := c.ownBlock(op, in[root], key.Count); err != nil {
			return nil, err
		}
	}
	p := c.inBytes(w, key, in, nil)
	for i := range in {
		addBlock(p, collectives.In, bytesOf(send), blocks[i], true, false)
	}
	if !key.InPlace {
		addBlock(p, collectives.Out, bytesOf(recv), l, false, true)
	}
	return p.CheckBlocks(op)
}

// Allgatherw is Gatherw to all ranks; §6.7. All ranks give blocks of the same sizes. send may be nil: the rank's block
// is then in recv already.
func Allgatherw[S, R any](c *Comm, send []S, l Layout, recv []R, blocks []Layout) error {
	return c.perform(planAllgatherw(c, coll.Blocking, send, l, recv, blocks))
}

func planAllgatherw[S, R any](c *Comm, w coll.Way, send []S, l Layout, recv []R, blocks []Layout) (*coll.Plan, error) {
	if c.IsInter() {
		return planInterAllgatherw(c, w, send, l, recv, blocks)
	}
	op := w.Named("Allgatherw")
	if err := checkHolder[R](c, op); err != nil {
		return nil, err
	}
	out, err := checkBlocks(c, op, "blocks", recv, blocks, c.group.Size, true)
	if err != nil {
		return nil, err
	}
	key := coll.Key{Operation: collectives.Allgatherv, InPlace: send == nil}
	if !key.InPlace {
		if err := checkBlock(c, op, send, l, false); err != nil {
			return nil, err
		}
		if err := c.ownBlock(op, l.Size(), out[c.group.Rank]); err != nil {
			return nil, err
		}
	}
	p := c.inBytes(w, key, nil, out)
	if !key.InPlace {
		addBlock(p, collectives.In, bytesOf(send), l, true, false)
	}
	for i := range out {
		addBlock(p, collectives.Out, bytesOf(recv), blocks[i], key.InPlace && i == c.group.Rank, true)
	}
	return p.CheckBlocks(op)
}

// Alltoallw is Alltoallv with a layout for each block; §6.8. to[i] names the elements of send for rank i, and from[i]
// names the elements of recv that receive rank i's block. Both ranks' layouts name the same sequence of elements, and
// may differ. send may be nil at all ranks: from then names the elements to send, and the received ones replace them.
func Alltoallw[S, R any](c *Comm, send []S, to []Layout, recv []R, from []Layout) error {
	return c.perform(planAlltoallw(c, coll.Blocking, send, to, recv, from))
}

func planAlltoallw[S, R any](c *Comm, w coll.Way, send []S, to []Layout, recv []R, from []Layout) (*coll.Plan, error) {
	if c.IsInter() {
		return planInterAlltoallw(c, w, send, to, recv, from)
	}
	op := w.Call(collectives.Alltoallw)
	if err := checkHolder[R](c, op); err != nil {
		return nil, err
	}
	out, err := checkBlocks(c, op, "from", recv, from, c.group.Size, true)
	if err != nil {
		return nil, err
	}
	key := coll.Key{Operation: collectives.Alltoallw, InPlace: send == nil}
	in := out
	if !key.InPlace {
		if in, err = checkBlocks(c, op, "to", send, to, c.group.Size, false); err != nil {
			return nil, err
		}
		if err := c.ownBlock(op, in[c.group.Rank], out[c.group.Rank]); err != nil {
			return nil, err
		}
	}
	p := c.inBytes(w, key, in, out)
	if !key.InPlace {
		for i := range in {
			addBlock(p, collectives.In, bytesOf(send), to[i], true, false)
		}
	}
	for i := range out {
		addBlock(p, collectives.Out, bytesOf(recv), from[i], key.InPlace, true)
	}
	return p.CheckBlocks(op)
}

// NeighborAlltoallw is NeighborAlltoallv with a layout for each block; §8.6.4. to[i] names the elements of send for the
// i-th rank that the caller sends to, and from[i] names the elements of recv for the i-th rank that it receives from.
// So the border of a part of a grid needs no buffer.
func NeighborAlltoallw[S, R any](c *Comm, send []S, to []Layout, recv []R, from []Layout) error {
	return c.perform(planNeighborAlltoallw(c, coll.Blocking, send, to, recv, from))
}

func planNeighborAlltoallw[S, R any](c *Comm, w coll.Way, send []S, to []Layout, recv []R, from []Layout) (
	*coll.Plan, error,
) {
	op := w.Call(collectives.NeighborAlltoallw)
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
	p := c.inBytes(w, coll.Key{Operation: collectives.NeighborAlltoallw}, in, out)
	for i := range in {
		addBlock(p, collectives.In, bytesOf(send), to[i], true, false)
	}
	sources, _ := c.group.Topology.Neighbours(c.group.Rank)
	for i := range out {
		addBlock(p, collectives.Out, bytesOf(recv), from[i], false, sources[i] >= 0)
	}
	return p.CheckBlocks(op)
}

// IbcastLayout starts a BcastLayout; §6.12.2.
func IbcastLayout[T any](c *Comm, buf []T, l Layout, root int) (*Request, error) {
	return c.start(planBcastLayout(c, coll.Nonblocking, buf, l, root))
}

// BcastLayoutInit makes a persistent BcastLayout; §6.13.2.
func BcastLayoutInit[T any](c *Comm, buf []T, l Layout, root int) (*Request, error) {
	return c.keep(planBcastLayout(c, coll.Persistent, buf, l, root))
}

// Igatherw starts a Gatherw; §6.12.3.
func Igatherw[S, R any](c *Comm, send []S, l Layout, recv []R, blocks []Layout, root int) (*Request, error) {
	return c.start(planGatherw(c, coll.Nonblocking, send, l, recv, blocks, root))
}

// GatherwInit makes a persistent Gatherw; §6.13.3.
func GatherwInit[S, R any](c *Comm, send []S, l Layout, recv []R, blocks []Layout, root int) (*Request, error) {
	return c.keep(planGatherw(c, coll.Persistent, send, l, recv, blocks, root))
}

// Iscatterw starts a Scatterw; §6.12.4.
func Iscatterw[S, R any](c *Comm, send []S, blocks []Layout, recv []R, l Layout, root int) (*Request, error) {
	return c.start(planScatterw(c, coll.Nonblocking, send, blocks, recv, l, root))
}

// ScatterwInit makes a persistent Scatterw; §6.13.4.
func ScatterwInit[S, R any](c *Comm, send []S, blocks []Layout, recv []R, l Layout, root int) (*Request, error) {
	return c.keep(planScatterw(c, coll.Persistent, send, blocks, recv, l, root))
}

// Iallgatherw starts an Allgatherw; §6.12.5.
func Iallgatherw[S, R any](c *Comm, send []S, l Layout, recv []R, blocks []Layout) (*Request, error) {
	return c.start(planAllgatherw(c, coll.Nonblocking, send, l, recv, blocks))
}

// AllgatherwInit makes a persistent Allgatherw; §6.13.5.
func AllgatherwInit[S, R any](c *Comm, send []S, l Layout, recv []R, blocks []Layout) (*Request, error) {
	return c.keep(planAllgatherw(c, coll.Persistent, send, l, recv, blocks))
}

// Ialltoallw starts an Alltoallw; §6.12.6.
func Ialltoallw[S, R any](c *Comm, send []S, to []Layout, recv []R, from []Layout) (*Request, error) {
	return c.start(planAlltoallw(c, coll.Nonblocking, send, to, recv, from))
}

// AlltoallwInit makes a persistent Alltoallw; §6.13.6.
func AlltoallwInit[S, R any](c *Comm, send []S, to []Layout, recv []R, from []Layout) (*Request, error) {
	return c.keep(planAlltoallw(c, coll.Persistent, send, to, recv, from))
}

// IneighborAlltoallw starts a NeighborAlltoallw; §8.7.2.
func IneighborAlltoallw[S, R any](c *Comm, send []S, to []Layout, recv []R, from []Layout) (*Request, error) {
	return c.start(planNeighborAlltoallw(c, coll.Nonblocking, send, to, recv, from))
}

// NeighborAlltoallwInit makes a persistent NeighborAlltoallw; §8.8.2.
func NeighborAlltoallwInit[S, R any](c *Comm, send []S, to []Layout, recv []R, from []Layout) (*Request, error) {
	return c.keep(planNeighborAlltoallw(c, coll.Persistent, send, to, recv, from))
}
