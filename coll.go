package mpi

import (
	"fmt"
	"slices"
	"sync"

	"github.com/gorun-mpi/mpi/collectives"
	"github.com/gorun-mpi/mpi/internal/join"
	"github.com/gorun-mpi/mpi/pml"
)

// Every rank of a communicator makes the same collective calls in the same order. The n-th call of each rank has number
// n, which is in the tag of all its messages, on context cid+1: so any number of them is in flight, and none takes the
// messages of another.
//
// A call checks its arguments, takes a plan that fits them from the communicator, or makes one, and runs its schedule
// (collplan.go). Every rank runs its schedule to the end whatever happens: one that cannot go on, for a rank has failed
// or its operator has panicked, sends to those that wait for it that it has given up. So no live rank waits in vain.

// collTag is the lowest tag of the messages of collective calls. Below are those of collective.go.
const collTag = 1 << 30

// collSetup is how the ranks of this process make collective calls.
type collSetup struct {
	join.Collectives
	via collectives.Via
}

func setupOf(e *pml.Engine, how join.Collectives) *collSetup {
	s := &collSetup{how, collectives.Network}
	if t := e.Transport(); t == "shm" || t == "loop" {
		s.via = collectives.SharedMemory
	}
	return s
}

// colls are the collective calls of a rank on a communicator.
type colls struct {
	mu     sync.Mutex
	number uint32      // of the next call
	idle   []*collPlan // plans that no call uses, the latest last
}

// What is kept for later calls on one communicator: so many plans, each with no more memory than that.
const (
	plansKept  = 16
	memoryKept = 4 << 20
)

// begin gives a call its number and a plan. The plan is the call's until it is given back. want has no counts; in and
// out are those of the v forms.
func (c *Comm) begin(want *planKey, in, out []int64) *collPlan {
	k := &c.colls
	k.mu.Lock()
	tag := int32(collTag + k.number%collTag)
	k.number++
	for i := len(k.idle) - 1; i >= 0; i-- {
		if p := k.idle[i]; p.planKey == *want && slices.Equal(p.params.InCounts, in) &&
			slices.Equal(p.params.OutCounts, out) {
			k.idle = slices.Delete(k.idle, i, i+1)
			k.mu.Unlock()
			p.tag = tag
			return p
		}
	}
	k.mu.Unlock()
	p := newCollPlan(c, want, slices.Clone(in), slices.Clone(out))
	p.tag = tag
	return p
}

// give takes a plan back.
func (k *colls) give(p *collPlan) {
	for s := range p.spaces[:collectives.Tmp] {
		clear(p.spaces[s]) // the caller's buffers
		p.spaces[s] = p.spaces[s][:0]
	}
	p.failed = nil
	if p.memory() > memoryKept {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.idle) == plansKept {
		k.idle = slices.Delete(k.idle, 0, 1)
	}
	k.idle = append(k.idle, p)
}

// perform runs a call whose buffers are in p, and gives p back.
func (c *Comm) perform(op string, p *collPlan) error {
	var err error
	if c.ctx == nil {
		err = p.run(c)
		c.colls.give(p)
	} else {
		err = c.performApart(p)
	}
	if err != nil {
		return c.wrap(op, Undefined, Undefined, err)
	}
	return nil
}

// performApart is perform on memory of the library's own: when c's context ends, the caller's buffers are the caller's
// again, and the call is finished in the background, since the other ranks count on this one. Then p is not given back.
func (c *Comm) performApart(p *collPlan) error {
	theirs := slices.Clone(p.spaces[collectives.Out])
	for _, s := range []collectives.Space{collectives.In, collectives.Out} {
		for i, b := range p.spaces[s] {
			p.spaces[s][i] = aligned(len(b))
			copy(p.spaces[s][i], b)
		}
	}
	if err := c.outliving(func() error { return p.run(c) }); err != nil {
		return err
	}
	for i, b := range theirs {
		copy(b, p.spaces[collectives.Out][i])
	}
	c.colls.give(p)
	return nil
}

// aligned is n bytes of memory that elements of any type can lie in.
func aligned(n int) []byte { return bytesOf(make([]uint64, (n+7)/8))[:n] }

// checkColl reports why a collective call on c with elements of T cannot be made.
func checkColl[T any](c *Comm, op string) error {
	if err := c.intra(op); err != nil {
		return err
	}
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
	e := opError(op, class, format, args...)
	e.Comm = c.Name()
	return e
}

// checkRoot is checkColl of a call that has a root.
func checkRoot[T any](c *Comm, op string, root int) error {
	if err := checkColl[T](c, op); err != nil {
		return err
	}
	if uint(root) >= uint(c.size) {
		return c.collError(op, ErrRoot, "the root is %d; the communicator has %s", root, c.ranksText())
	}
	return nil
}

func (c *Comm) ranksText() string {
	if c.size == 1 {
		return "1 rank (0)"
	}
	return fmt.Sprintf("%d ranks (0–%d)", c.size, c.size-1)
}

// lengthError is that of two buffers whose lengths do not go together.
func (c *Comm) lengthError(op, format string, args ...any) error {
	return c.collError(op, ErrCount, format, args...)
}

// share is the length of a block where all has one for each rank.
func (c *Comm) share(op, name string, all int) (int, error) {
	if all%c.size != 0 {
		return 0, c.lengthError(op, "%s has %d elements, which cannot be the same number for each of %d ranks; "+
			"use the form with v, or another length", name, all, c.size)
	}
	return all / c.size, nil
}

// blocks reports that a list with a slice for each rank has another length.
func (c *Comm) blocks(op, name string, n int) error {
	if n != c.size {
		return c.lengthError(op, "%s has %d slices; it must have one for each of %d ranks, which may be empty", name, n,
			c.size)
	}
	return nil
}

// keyOf is what all calls of an operation with elements of T have in common. A T without size is sent as nothing.
func keyOf[T any](o collectives.Operation) planKey {
	return planKey{operation: o, elemSize: int64(max(1, sizeOf[T]())), commutative: true}
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

// buffer and list are what a space of the call is.
func buffer[T any](p *collPlan, s collectives.Space, buf []T) {
	p.spaces[s] = append(p.spaces[s][:0], bytesOf(buf))
}

func list[T any](p *collPlan, s collectives.Space, blocks [][]T) {
	p.spaces[s] = p.spaces[s][:0]
	for _, b := range blocks {
		p.spaces[s] = append(p.spaces[s], bytesOf(b))
	}
}
