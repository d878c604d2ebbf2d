package mpi

import (
	"fmt"
	"reflect"

	"github.com/gorun-mpi/mpi/collectives"
	"github.com/gorun-mpi/mpi/internal/coll"
)

// Each collective operation has one function that checks the arguments, and takes a plan that fits them from the
// communicator or makes one: plan… in collmove.go, collreduce.go, colllayout.go and collneighbor.go. Each way to make
// the call is one line that hands the plan on to internal/coll.

// perform makes a blocking call, whose buffers are in p. err is the error of its arguments; then there is no p.
func (c *Comm) perform(p *coll.Plan, err error) error {
	if err != nil || c.ctx != nil {
		return c.performWithin(p, err)
	}
	return p.Perform(nil)
}

// start makes a nonblocking call.
func (c *Comm) start(p *coll.Plan, err error) (*Request, error) {
	if h := c.hook(); h != nil {
		return h.startWithin(p, coll.Nonblocking, err, func(c *Comm) (*Request, error) { return c.start(p, err) })
	}
	if err != nil {
		return nil, c.mistaken(coll.Nonblocking, err)
	}
	op := codeOf(coll.Nonblocking, p.Operation) // p may be another call's after the start
	return c.request(op, Undefined, Undefined, p.Start(c.ctx)), nil
}

// keep makes a request for a persistent call.
func (c *Comm) keep(p *coll.Plan, err error) (*Request, error) {
	if h := c.hook(); h != nil {
		return h.startWithin(p, coll.Persistent, err, func(c *Comm) (*Request, error) { return c.keep(p, err) })
	}
	if err != nil {
		return nil, c.mistaken(coll.Persistent, err)
	}
	r := c.request(codeOf(coll.Persistent, p.Operation), Undefined, Undefined, p.Prepare(c.ctx))
	r.plan = p
	return r, nil
}

// mistaken returns err, after the other ranks have heard of it if calls are compared.
func (c *Comm) mistaken(w coll.Way, err error) error {
	if c == nil || c.commState == nil {
		return err
	}
	return c.group.Mistaken(c.ctx, w, err)
}

// planned returns a plan for a call on g that is made in way w. It notes the type of the elements if calls are
// compared.
func planned[T any](g *coll.Group, w coll.Way, key coll.Key, in, out []int64) *coll.Plan {
	p := g.Plan(w, &key, in, out)
	if g.Setup.Check {
		p.TypeName = reflect.TypeFor[T]().String()
	}
	return p
}

// checkColl reports why a collective call on c with elements of T cannot be made.
func checkColl[T any](c *Comm, op string) error {
	if err := c.intra(op); err != nil {
		return err
	}
	return checkElements[T](c, op)
}

// checkElements reports why a T cannot be sent.
func checkElements[T any](c *Comm, op string) error {
	if known[T]() {
		return nil
	}
	if err := fixedType[T](); err != nil {
		return c.collError(op, ErrType, "%w", err)
	}
	knownTypes.add(typeOf[T]())
	return nil
}

func (c *Comm) collError(op string, class error, format string, args ...any) error {
	return c.opError(op, class, format, args...)
}

// checkRoot is checkColl of a call that has a root.
func checkRoot[T any](c *Comm, op string, root int) error {
	if err := checkColl[T](c, op); err != nil {
		return err
	}
	return c.isRoot(op, root)
}

// isRoot reports that there is no such root.
func (c *Comm) isRoot(op string, root int) error {
	if uint(root) >= uint(c.group.Size) {
		return c.collError(op, ErrRoot, "the root is %d; the communicator has %s", root, c.ranksText())
	}
	return nil
}

func (c *Comm) ranksText() string {
	if c.group.Size == 1 {
		return "1 rank (0)"
	}
	return fmt.Sprintf("%d ranks (0–%d)", c.group.Size, c.group.Size-1)
}

// lengthError is that of two buffers whose lengths do not go together.
func (c *Comm) lengthError(op, format string, args ...any) error {
	return c.collError(op, ErrCount, format, args...)
}

// blockLen returns the length of a block where all has one for each rank.
func (c *Comm) blockLen(op, name string, all int) (int, error) {
	if all%c.group.Size != 0 {
		return 0, c.lengthError(op, "%s has %d elements, which cannot be the same number for each of %d ranks; "+
			"use the form with v, or another length", name, all, c.group.Size)
	}
	return all / c.group.Size, nil
}

// blocks reports that a list with a slice for each rank has another length.
func (c *Comm) blocks(op, name string, n int) error {
	if n != c.group.Size {
		return c.lengthError(op, "%s has %d slices; it must have one for each of %d ranks, which may be empty", name, n,
			c.group.Size)
	}
	return nil
}

// keyOf returns what all calls of an operation with elements of T have in common. A T without size is sent as nothing.
func keyOf[T any](o collectives.Operation) coll.Key {
	return coll.Key{Operation: o, ElemSize: int64(max(1, sizeOf[T]())), Commutative: true}
}

// elements is how many elements a schedule sees of n.
func elements[T any](n int) int64 {
	if sizeOf[T]() == 0 {
		return 0
	}
	return int64(n)
}

// fewRanks is for how many ranks the counts of a call are kept on the stack.
const fewRanks = 64

// countsOf appends the lengths of blocks to counts. Of no block the result is not nil: there are counts.
func countsOf[T any](counts []int64, blocks [][]T) []int64 {
	for _, b := range blocks {
		counts = append(counts, elements[T](len(b)))
	}
	return counts
}

// withBuffers returns p with the buffers of a call, unless they share memory.
func withBuffers[T any](op string, p *coll.Plan, send, recv []T) (*coll.Plan, error) {
	buffer(p, collectives.In, send)
	buffer(p, collectives.Out, recv)
	return p.CheckBuffers(op)
}

// oneToBlocks returns the plan of a call that has one buffer to send, and a block to receive for each rank or
// neighbour.
func oneToBlocks[T any](c *Comm, w coll.Way, op string, key coll.Key, send []T, recv [][]T) (*coll.Plan, error) {
	var few [fewRanks]int64
	p := planned[T](&c.group, w, key, nil, countsOf(few[:0], recv))
	buffer(p, collectives.In, send)
	list(p, collectives.Out, recv)
	return p.CheckBlocks(op)
}

// buffer makes buf, and list makes blocks what is in a space of the call.
func buffer[T any](p *coll.Plan, s collectives.Space, buf []T) { p.SetBuffer(s, bytesOf(buf)) }

func list[T any](p *coll.Plan, s collectives.Space, blocks [][]T) {
	p.ClearSpace(s)
	for _, b := range blocks {
		p.AddBlock(s, bytesOf(b))
	}
}
