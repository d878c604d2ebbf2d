package truth

import (
	"errors"
	"fmt"
	"slices"

	"github.com/gorun-mpi/mpi"
	"github.com/gorun-mpi/mpi/collectives"
)

// Operations are the calls, except the calls with layouts, among neighbours and on intercommunicators.
var Operations = func() (list []collectives.Operation) {
	for o := range collectives.Operation(collectives.Operations) {
		if !o.Neighborhood() && o != collectives.Alltoallw && !o.BetweenGroups() {
			list = append(list, o)
		}
	}
	return list
}()

func rooted(o collectives.Operation) bool  { return o.Facts().Rooted }
func reduces(o collectives.Operation) bool { return o.Facts().Reduces }

// unequal reports whether the ranks have blocks of different lengths.
func unequal(o collectives.Operation) bool { return o.Facts().Shape == collectives.Unequal }

// whole reports whether Count is of a vector that all ranks have, and not of a block for each.
func whole(o collectives.Operation) bool { return o.Facts().Shape == collectives.Vector }

// InPlace reports whether there is such a form.
func InPlace(o collectives.Operation) bool { return o.Facts().InPlace }

// Way is how a call is made.
type Way int

// The ways.
const (
	Blocking Way = iota
	Nonblocking
	Persistent
	Ways // how many there are
)

// Call is one collective call, the same at all ranks.
type Call struct {
	Operation collectives.Operation
	Kind      int // of elements
	Operator  int // of those that the kind has
	Ordered   bool
	InPlace   bool
	Count     int // elements of a block; about so many where the blocks are of different lengths
	Root      int
	Way       Way
	Key       uint64 // what the elements follow from
}

func (c *Call) String() string {
	k := kinds[c.Kind]
	s := fmt.Sprintf("%v of %d × %v", c.Operation, c.Count, k)
	if rooted(c.Operation) {
		s += fmt.Sprintf(", root %d", c.Root)
	}
	if reduces(c.Operation) {
		s += ", " + k.operator(c.Operator)
	}
	if c.Ordered {
		s += ", Ordered"
	}
	if c.InPlace {
		s += ", in place"
	}
	s += [Ways]string{"", ", nonblocking", ", persistent"}[c.Way]
	return s
}

// Make makes the call, and reports what is wrong with its result.
func (c *Call) Make(comm *mpi.Comm) error {
	p, err := c.Start(comm)
	if err == nil {
		err = p.Finish()
	}
	return err
}

// Start makes the call, if need be without waiting for its end.
func (c *Call) Start(comm *mpi.Comm) (*Pending, error) {
	p, err := kinds[c.Kind].begin(comm, c)
	if err != nil {
		return nil, fmt.Errorf("%v: %w", c, err)
	}
	return p, nil
}

// Pending is a call that may be under way.
type Pending struct {
	call  *Call
	check func() error
}

// Finish waits for the end of the call, and compares its result with the truth.
func (p *Pending) Finish() error {
	if err := p.check(); err != nil {
		return fmt.Errorf("%v: %w", p.call, err)
	}
	return nil
}

// length is of the block that rank i has for rank j.
func (c *Call) length(i, j int) int {
	if !unequal(c.Operation) {
		return c.Count
	}
	if c.InPlace && c.Operation == collectives.Alltoallv { // both have the same for each other
		i, j = min(i, j), max(i, j)
	}
	return c.Count * int(mix(c.Key, uint64(i), uint64(j))%4) / 2
}

// ranks is a rank's view of a call.
type ranks[T comparable] struct {
	*kind[T]
	call     *Call
	me, size int
	request  *mpi.Request // of a call that is not blocking
}

// make makes the call in its way. A persistent one whose input stays is made twice.
func (r *ranks[T]) make(blocking func() error, nonblocking, persistent func() (*mpi.Request, error)) (err error) {
	switch r.call.Way {
	case Blocking:
		return blocking()
	case Nonblocking:
		r.request, err = nonblocking()
		return err
	}
	if r.request, err = persistent(); err != nil {
		return err
	}
	if err = r.request.Start(); err == nil && !r.call.InPlace {
		if _, err = r.request.Wait(); err == nil {
			err = r.request.Start()
		}
	}
	if err != nil {
		err = errors.Join(err, r.request.Free())
	}
	return err
}

// wait waits for the end of the call.
func (r *ranks[T]) wait() error {
	if r.request == nil {
		return nil
	}
	_, err := r.request.Wait()
	if r.call.Way == Persistent {
		err = errors.Join(err, r.request.Free())
	}
	return err
}

// period is after how many elements a block begins again: no multiple of what calls cut blocks into.
const period = 509

// tile repeats the first period of b: copying is fast with the race detector too, which sees that b is written.
func tile[T any](b []T) {
	for k := period; k < len(b); k *= 2 {
		copy(b[k:], b[:k])
	}
}

// block is n elements that rank has for rank to.
func (r *ranks[T]) block(rank, to, n int) []T {
	b := make([]T, n)
	base := mix(r.call.Key, uint64(rank), uint64(to))
	for i := range min(n, period) {
		b[i] = r.of(mix(base+uint64(i)), rank)
	}
	tile(b)
	return b
}

// lists are blocks for each rank, in memory of their own, or one after the other.
func (r *ranks[T]) list(f func(i int) []T) (all [][]T) {
	for i := range r.size {
		all = append(all, f(i))
	}
	return all
}

func (r *ranks[T]) one(f func(i int) []T) []T { return slices.Concat(r.list(f)...) }

// blank is memory that a call is to write to.
func (r *ranks[T]) blank(n int) []T { return r.block(1<<20, 1, n) }

// combined is what the blocks of ranks from 0 to below high, for rank to, give.
func (r *ranks[T]) combined(high, to, n int) []T {
	op := r.operators[r.call.Operator%len(r.operators)]
	all := r.block(0, to, n)
	for rank := 1; rank < high; rank++ {
		for i, x := range r.block(rank, to, min(n, period)) {
			all[i] = op.plain(all[i], x)
		}
	}
	tile(all)
	return all
}

// expectation is memory and what it must have after the call.
type expectation[T comparable] struct {
	what string
	got  []T
	want func() []T
}

func (e expectation[T]) check() error {
	want := e.want()
	if len(e.got) != len(want) {
		return fmt.Errorf("%s has %d elements, and %d are expected", e.what, len(e.got), len(want))
	}
	if sameBytes(e.got, want) {
		return nil
	}
	for i := range want {
		if e.got[i] != want[i] {
			return fmt.Errorf("%s: element %d of %d is %v, not %v", e.what, i, len(want), e.got[i], want[i])
		}
	}
	return nil
}

// begin makes a call with elements of this kind.
func (k *kind[T]) begin(c *mpi.Comm, call *Call) (*Pending, error) {
	r := &ranks[T]{kind: k, call: call, me: c.Rank(), size: c.Size()}
	var expected []expectation[T]
	expect := func(what string, got []T, want func() []T) {
		expected = append(expected, expectation[T]{what, got, want})
	}
	// unchanged expects that a buffer stays as it is.
	unchanged := func(what string, b []T) []T {
		before := slices.Clone(b)
		expect(what, b, func() []T { return before })
		return b
	}
	var err error
	if reduces(call.Operation) {
		err = r.reduction(c, expect, unchanged)
	} else {
		err = r.movement(c, expect, unchanged)
	}
	if err != nil {
		return nil, err
	}
	return &Pending{call, func() error {
		if err := r.wait(); err != nil {
			return err
		}
		for _, e := range expected {
			if err := e.check(); err != nil {
				return err
			}
		}
		return nil
	}}, nil
}

type expecting[T any] = func(what string, got []T, want func() []T)

// movement makes the calls that combine nothing.
func (r *ranks[T]) movement(c *mpi.Comm, expect expecting[T], unchanged func(string, []T) []T) error {
	call, me, root := r.call, r.me, r.call.Root
	mine := func(i int) []T { return r.block(me, i, call.length(me, i)) }     // for rank i
	theirs := func(i int) []T { return r.block(i, me, call.length(i, me)) }   // of rank i
	from := func(i int) []T { return r.block(i, root, call.length(i, root)) } // of rank i for the root
	blanks := func(f func(i int) []T) func(i int) []T { return func(i int) []T { return r.blank(len(f(i))) } }
	// placed is f with what has been there before at all ranks but this one.
	placed := func(f func(i int) []T) func(i int) []T {
		return func(i int) []T {
			if b := f(i); i == me {
				return b
			} else {
				return r.blank(len(b))
			}
		}
	}
	expectAll := func(list [][]T, f func(i int) []T) {
		for i, b := range list {
			expect(fmt.Sprintf("the block of rank %d", i), b, func() []T { return f(i) })
		}
	}
	before := blanks
	if call.InPlace {
		before = placed
	}
	switch op := call.Operation; op {
	case collectives.Barrier:
		return r.make(func() error { return mpi.Barrier(c) },
			func() (*mpi.Request, error) { return mpi.Ibarrier(c) },
			func() (*mpi.Request, error) { return mpi.BarrierInit(c) })
	case collectives.Bcast:
		buf := r.blank(call.Count)
		if me == root {
			buf = r.block(root, root, call.Count)
		}
		expect("buf", buf, func() []T { return r.block(root, root, call.Count) })
		return r.make(func() error { return mpi.Bcast(c, buf, root) },
			func() (*mpi.Request, error) { return mpi.Ibcast(c, buf, root) },
			func() (*mpi.Request, error) { return mpi.BcastInit(c, buf, root) })
	case collectives.Gather, collectives.Gatherv:
		send := unchanged("send", mine(root))
		switch {
		case me != root && op == collectives.Gather:
			return r.make(func() error { return mpi.Gather(c, send, unchanged("recv", r.blank(3)), root) },
				func() (*mpi.Request, error) { return mpi.Igather(c, send, unchanged("recv", r.blank(3)), root) },
				func() (*mpi.Request, error) { return mpi.GatherInit(c, send, unchanged("recv", r.blank(3)), root) })
		case me != root:
			return r.make(func() error { return mpi.Gatherv(c, send, nil, root) },
				func() (*mpi.Request, error) { return mpi.Igatherv(c, send, nil, root) },
				func() (*mpi.Request, error) { return mpi.GathervInit(c, send, nil, root) })
		case call.InPlace:
			send = nil
		}
		if op == collectives.Gather {
			recv := r.one(before(from))
			expect("recv", recv, func() []T { return r.one(from) })
			return r.make(func() error { return mpi.Gather(c, send, recv, root) },
				func() (*mpi.Request, error) { return mpi.Igather(c, send, recv, root) },
				func() (*mpi.Request, error) { return mpi.GatherInit(c, send, recv, root) })
		}
		recv := r.list(before(from))
		expectAll(recv, from)
		return r.make(func() error { return mpi.Gatherv(c, send, recv, root) },
			func() (*mpi.Request, error) { return mpi.Igatherv(c, send, recv, root) },
			func() (*mpi.Request, error) { return mpi.GathervInit(c, send, recv, root) })
	case collectives.Scatter, collectives.Scatterv:
		want := func() []T { return r.block(root, me, call.length(root, me)) }
		recv := r.blank(call.length(root, me))
		if me == root && call.InPlace {
			recv = nil
		} else {
			expect("recv", recv, want)
		}
		switch {
		case me != root && op == collectives.Scatter:
			return r.make(func() error { return mpi.Scatter(c, r.blank(3), recv, root) },
				func() (*mpi.Request, error) { return mpi.Iscatter(c, r.blank(3), recv, root) },
				func() (*mpi.Request, error) { return mpi.ScatterInit(c, r.blank(3), recv, root) })
		case me != root:
			return r.make(func() error { return mpi.Scatterv(c, nil, recv, root) },
				func() (*mpi.Request, error) { return mpi.Iscatterv(c, nil, recv, root) },
				func() (*mpi.Request, error) { return mpi.ScattervInit(c, nil, recv, root) })
		case op == collectives.Scatter:
			return r.make(func() error { return mpi.Scatter(c, unchanged("send", r.one(mine)), recv, root) },
				func() (*mpi.Request, error) { return mpi.Iscatter(c, unchanged("send", r.one(mine)), recv, root) },
				func() (*mpi.Request, error) { return mpi.ScatterInit(c, unchanged("send", r.one(mine)), recv, root) })
		}
		send := r.list(mine)
		expectAll(send, mine)
		return r.make(func() error { return mpi.Scatterv(c, send, recv, root) },
			func() (*mpi.Request, error) { return mpi.Iscatterv(c, send, recv, root) },
			func() (*mpi.Request, error) { return mpi.ScattervInit(c, send, recv, root) })
	case collectives.Allgather, collectives.Allgatherv:
		root = 0 // all ranks get what rank i has for rank 0
		send := unchanged("send", mine(0))
		if call.InPlace {
			send = nil
		}
		if op == collectives.Allgather {
			recv := r.one(before(from))
			expect("recv", recv, func() []T { return r.one(from) })
			return r.make(func() error { return mpi.Allgather(c, send, recv) },
				func() (*mpi.Request, error) { return mpi.Iallgather(c, send, recv) },
				func() (*mpi.Request, error) { return mpi.AllgatherInit(c, send, recv) })
		}
		recv := r.list(before(from))
		expectAll(recv, from)
		return r.make(func() error { return mpi.Allgatherv(c, send, recv) },
			func() (*mpi.Request, error) { return mpi.Iallgatherv(c, send, recv) },
			func() (*mpi.Request, error) { return mpi.AllgathervInit(c, send, recv) })
	case collectives.Alltoall:
		send, recv := r.one(mine), r.one(blanks(theirs))
		if call.InPlace {
			send, recv = nil, send
		} else {
			unchanged("send", send)
		}
		expect("recv", recv, func() []T { return r.one(theirs) })
		return r.make(func() error { return mpi.Alltoall(c, send, recv) },
			func() (*mpi.Request, error) { return mpi.Ialltoall(c, send, recv) },
			func() (*mpi.Request, error) { return mpi.AlltoallInit(c, send, recv) })
	case collectives.Alltoallv:
		send, recv := r.list(mine), r.list(blanks(theirs))
		if call.InPlace {
			send, recv = nil, send
		} else {
			expectAll(send, mine)
		}
		expectAll(recv, theirs)
		return r.make(func() error { return mpi.Alltoallv(c, send, recv) },
			func() (*mpi.Request, error) { return mpi.Ialltoallv(c, send, recv) },
			func() (*mpi.Request, error) { return mpi.AlltoallvInit(c, send, recv) })
	}
	return fmt.Errorf("no such operation: %d", call.Operation)
}

// reduction makes the calls that combine.
func (r *ranks[T]) reduction(c *mpi.Comm, expect expecting[T], unchanged func(string, []T) []T) error {
	call, me, root, n := r.call, r.me, r.call.Root, r.call.Count
	operator := r.operators[call.Operator%len(r.operators)]
	op := operator.op
	var options []mpi.Reduction
	if operator.order || call.Ordered {
		options = append(options, mpi.Ordered)
	}
	send, recv := unchanged("send", r.block(me, 0, n)), r.blank(n)
	if call.InPlace {
		send, recv = nil, slices.Clone(send)
	}
	result := func(high int) { expect("recv", recv, func() []T { return r.combined(high, 0, n) }) }
	switch call.Operation {
	case collectives.Reduce:
		if me != root {
			mine, recv := r.block(me, 0, n), unchanged("recv", r.blank(3))
			return r.make(func() error { return mpi.Reduce(c, mine, recv, op, root, options...) },
				func() (*mpi.Request, error) { return mpi.Ireduce(c, mine, recv, op, root, options...) },
				func() (*mpi.Request, error) { return mpi.ReduceInit(c, mine, recv, op, root, options...) })
		}
		result(r.size)
		return r.make(func() error { return mpi.Reduce(c, send, recv, op, root, options...) },
			func() (*mpi.Request, error) { return mpi.Ireduce(c, send, recv, op, root, options...) },
			func() (*mpi.Request, error) { return mpi.ReduceInit(c, send, recv, op, root, options...) })
	case collectives.Allreduce:
		result(r.size)
		return r.make(func() error { return mpi.Allreduce(c, send, recv, op, options...) },
			func() (*mpi.Request, error) { return mpi.Iallreduce(c, send, recv, op, options...) },
			func() (*mpi.Request, error) { return mpi.AllreduceInit(c, send, recv, op, options...) })
	case collectives.Scan:
		result(me + 1)
		return r.make(func() error { return mpi.Scan(c, send, recv, op, options...) },
			func() (*mpi.Request, error) { return mpi.Iscan(c, send, recv, op, options...) },
			func() (*mpi.Request, error) { return mpi.ScanInit(c, send, recv, op, options...) })
	case collectives.Exscan:
		if me > 0 {
			result(me)
		} else {
			unchanged("recv", recv)
		}
		return r.make(func() error { return mpi.Exscan(c, send, recv, op, options...) },
			func() (*mpi.Request, error) { return mpi.Iexscan(c, send, recv, op, options...) },
			func() (*mpi.Request, error) { return mpi.ExscanInit(c, send, recv, op, options...) })
	}
	counts := make([]int, r.size)
	for i := range counts {
		counts[i] = call.length(0, i)
	}
	send = unchanged("send", r.one(func(i int) []T { return r.block(me, i, counts[i]) }))
	recv = r.blank(counts[me])
	if call.InPlace {
		send, recv = nil, slices.Clone(send)
	}
	expect("recv", recv[:counts[me]], func() []T { return r.combined(r.size, me, counts[me]) })
	if call.Operation == collectives.ReduceScatterBlock {
		return r.make(func() error { return mpi.ReduceScatterBlock(c, send, recv, op, options...) },
			func() (*mpi.Request, error) { return mpi.IreduceScatterBlock(c, send, recv, op, options...) },
			func() (*mpi.Request, error) { return mpi.ReduceScatterBlockInit(c, send, recv, op, options...) })
	}
	return r.make(func() error { return mpi.ReduceScatter(c, send, recv, counts, op, options...) },
		func() (*mpi.Request, error) { return mpi.IreduceScatter(c, send, recv, counts, op, options...) },
		func() (*mpi.Request, error) { return mpi.ReduceScatterInit(c, send, recv, counts, op, options...) })
}
