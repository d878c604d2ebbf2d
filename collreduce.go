package mpi

import (
	"math"
	"reflect"
	"runtime"
	"strings"

	"github.com/gorun-mpi/mpi/collectives"
	"github.com/gorun-mpi/mpi/internal/coll"
)

// Reduction is an option of a call that combines contributions.
type Reduction uint8

// Ordered says that the operator does not commute; §6.9.1 (the commute flag of an operator). The call then combines the
// ranks' contributions in the order of ranks. Without Ordered, which is faster, the order is not defined, but it is the
// same in each call with the same ranks, lengths and settings, whether the call is blocking, nonblocking or persistent.
// An operator commutes if a ∘ b and b ∘ a have the same bits. Any other operator needs Ordered, or results may differ
// between calls.
const Ordered Reduction = 1

// operatorOf is the operator of the call that owns a plan.
type operatorOf[T any] struct{ op Op[T] }

// Forget implements coll.Operator.
func (o *operatorOf[T]) Forget() { o.op = nil }

// Combine implements coll.Operator.
func (o *operatorOf[T]) Combine(inout, in []byte) {
	n := len(in) / sizeOf[T]()
	o.op(sliceOf[T](inout, n), sliceOf[T](in, n))
}

// reducing is planned, of a call that combines.
func reducing[T any](g *coll.Group, w coll.Way, key coll.Key, op Op[T], options []Reduction, in []int64) *coll.Plan {
	key.Element = typeOf[T]()
	for _, o := range options {
		if o == Ordered {
			key.Commutative = false
		}
	}
	p := planned[T](g, w, key, in, nil)
	if p.Operator == nil {
		p.Operator = &operatorOf[T]{}
	}
	p.Operator.(*operatorOf[T]).op = op
	if g.Setup.Check {
		p.OperatorName = operatorName(op)
	}
	return p
}

// operatorName returns the name of an operator of this package; "" of another one.
func operatorName[T any](op Op[T]) string {
	name := runtime.FuncForPC(reflect.ValueOf(op).Pointer()).Name()
	name, ours := strings.CutPrefix(name, reflect.TypeFor[Comm]().PkgPath()+".")
	if name, generic := strings.CutSuffix(name, "[...]"); ours && generic {
		return name
	}
	return ""
}

// checkOp reports why op cannot combine elements of T.
func checkOp[T any](c *Comm, name string, op Op[T]) error {
	if err := checkColl[T](c, name); err != nil {
		return err
	}
	if op == nil {
		return c.nilOp(name)
	}
	return nil
}

func (c *Comm) nilOp(name string) error {
	return c.collError(name, ErrOp, "the operator is nil; use mpi.Sum or another Op")
}

// vectors is the length of two buffers that have the same. send may be nil: in place.
func (c *Comm) vectors(op string, send int, inPlace bool, recv int) (int, error) {
	if !inPlace && send != recv {
		return 0, c.lengthError(op, "send has %d elements and recv %d; both must have the same length", send, recv)
	}
	return recv, nil
}

// Reduce combines send of all ranks in rank root's recv; §6.9.1. All have one length. Other ranks' recv is not used.
// The root's send may be nil: recv then holds its contribution, and the result replaces it. An operator that does not
// commute needs Ordered.
func Reduce[T any](c *Comm, send, recv []T, op Op[T], root int, options ...Reduction) error {
	return c.perform(planReduce(c, coll.Blocking, send, recv, op, root, options))
}

func planReduce[T any](c *Comm, w coll.Way, send, recv []T, op Op[T], root int, options []Reduction) (
	*coll.Plan, error,
) {
	if c.IsInter() {
		return planInterReduce(c, w, send, recv, op, root, options)
	}
	name := w.Call(collectives.Reduce)
	if err := checkRoot[T](c, name, root); err != nil {
		return nil, err
	}
	if err := checkOp(c, name, op); err != nil {
		return nil, err
	}
	key := keyOf[T](collectives.Reduce)
	key.Root = root
	n := len(send)
	if c.group.Rank == root {
		var err error
		if n, err = c.vectors(name, len(send), send == nil, len(recv)); err != nil {
			return nil, err
		}
		key.InPlace = send == nil
	} else {
		recv = nil
	}
	key.Count = elements[T](n)
	return withBuffers(name, reducing(&c.group, w, key, op, options, nil), send, recv)
}

// Allreduce is Reduce to all ranks, which get the same result; §6.9.6. send may be nil: recv then holds the rank's
// contribution.
func Allreduce[T any](c *Comm, send, recv []T, op Op[T], options ...Reduction) error {
	return c.perform(planReduceEach(c, coll.Blocking, collectives.Allreduce, send, recv, op, options))
}

// Scan combines send of ranks 0 to this one in recv; §6.11.1. send may be nil: recv then holds the rank's contribution.
func Scan[T any](c *Comm, send, recv []T, op Op[T], options ...Reduction) error {
	return c.perform(planReduceEach(c, coll.Blocking, collectives.Scan, send, recv, op, options))
}

// Exscan is Scan without this rank's contribution; §6.11.2. Rank 0's recv does not change.
func Exscan[T any](c *Comm, send, recv []T, op Op[T], options ...Reduction) error {
	return c.perform(planReduceEach(c, coll.Blocking, collectives.Exscan, send, recv, op, options))
}

// planReduceEach is for a call that gives each rank a vector of the length that each has.
func planReduceEach[T any](c *Comm, w coll.Way, o collectives.Operation, send, recv []T, op Op[T],
	options []Reduction,
) (*coll.Plan, error) {
	if o == collectives.Allreduce && c.IsInter() {
		return planInterAllreduce(c, w, send, recv, op, options)
	}
	name := w.Call(o)
	if err := checkOp(c, name, op); err != nil {
		return nil, err
	}
	n, err := c.vectors(name, len(send), send == nil, len(recv))
	if err != nil {
		return nil, err
	}
	key := keyOf[T](o)
	key.Count, key.InPlace = elements[T](n), send == nil
	return withBuffers(name, reducing(&c.group, w, key, op, options, nil), send, recv)
}

// ReduceScatterBlock combines send of all ranks, which has Size blocks of one length, and leaves block i in rank i's
// recv; §6.10.1. send may be nil: recv is then as long as send would be and holds the rank's contribution, and the
// result is at its beginning.
func ReduceScatterBlock[T any](c *Comm, send, recv []T, op Op[T], options ...Reduction) error {
	return c.perform(planReduceScatterBlock(c, coll.Blocking, send, recv, op, options))
}

func planReduceScatterBlock[T any](c *Comm, w coll.Way, send, recv []T, op Op[T], options []Reduction) (
	*coll.Plan, error,
) {
	if c.IsInter() {
		return planInterReduceScatterBlock(c, w, send, recv, op, options)
	}
	name := w.Call(collectives.ReduceScatterBlock)
	if err := checkOp(c, name, op); err != nil {
		return nil, err
	}
	all, what := send, "send"
	if send == nil {
		all, what = recv, "recv"
	}
	n, err := c.blockLen(name, what, len(all))
	if err != nil {
		return nil, err
	}
	if send != nil && n != len(recv) {
		return nil, c.lengthError(name, "send has %d elements and recv %d; send must have %d, one block for each of %d ranks",
			len(send), len(recv), len(recv)*c.group.Size, c.group.Size)
	}
	key := keyOf[T](collectives.ReduceScatterBlock)
	key.Count, key.InPlace = elements[T](n), send == nil
	return withBuffers(name, reducing(&c.group, w, key, op, options, nil), send, recv)
}

// ReduceScatter is ReduceScatterBlock where block i has counts[i] elements; §6.10.2. All ranks give the same counts.
func ReduceScatter[T any](c *Comm, send, recv []T, counts []int, op Op[T], options ...Reduction) error {
	return c.perform(planReduceScatter(c, coll.Blocking, send, recv, counts, op, options))
}

func planReduceScatter[T any](c *Comm, w coll.Way, send, recv []T, counts []int, op Op[T], options []Reduction) (
	*coll.Plan, error,
) {
	if c.IsInter() {
		return planInterReduceScatterCounts(c, w, send, recv, counts, op, options)
	}
	name := w.Call(collectives.ReduceScatter)
	if err := checkOp(c, name, op); err != nil {
		return nil, err
	}
	if len(counts) != c.group.Size {
		return nil, c.lengthError(name, "there are %d counts; there must be one for each of %d ranks", len(counts),
			c.group.Size)
	}
	var few [fewRanks]int64
	in, sum, err := c.sumCounts(name, few[:0], counts)
	if err != nil {
		return nil, err
	}
	if elements[T](1) == 0 {
		clear(in)
	}
	switch {
	case send == nil && len(recv) != sum:
		return nil, c.lengthError(name, "recv has %d elements; in place it has the sum of counts, %d", len(recv), sum)
	case send != nil && (len(send) != sum || len(recv) != counts[c.group.Rank]):
		return nil, c.lengthError(name, "send has %d elements and recv %d; send has the sum of counts, %d, and recv "+
			"counts[%d], %d", len(send), len(recv), sum, c.group.Rank, counts[c.group.Rank])
	}
	key := keyOf[T](collectives.ReduceScatter)
	key.InPlace = send == nil
	return withBuffers(name, reducing(&c.group, w, key, op, options, in), send, recv)
}

// sumCounts appends counts to in, and returns their sum.
func (c *Comm) sumCounts(name string, in []int64, counts []int) (_ []int64, sum int, err error) {
	for i, n := range counts {
		if n < 0 {
			return nil, 0, c.lengthError(name, "counts[%d] is %d; a count is at least 0", i, n)
		}
		if n > math.MaxInt-sum {
			return nil, 0, c.lengthError(name, "the sum of counts is more than %d", math.MaxInt)
		}
		in, sum = append(in, int64(n)), sum+n
	}
	return in, sum, nil
}
