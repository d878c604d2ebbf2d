package main

import (
	"fmt"

	"github.com/gorun-mpi/mpi"
	"github.com/gorun-mpi/mpi/benchmarks/harness"
)

const (
	callers = 8  // goroutines of a rank that call other ranks, apart from the lanes
	calls   = 25 // of each of them in a round
)

// rank is this rank's side of all rounds, with a communicator for each kind of traffic.
type rank struct {
	world        *mpi.Comm
	seed         uint64
	lanes        [lanes]*mpi.Comm
	calls        *mpi.Comm
	cancels      *mpi.Comm
	deadlineComm *mpi.Comm
	lent         *mpi.Comm
	open         []*mpi.Request // sends of cancelSome that end when the neighbour has received them
	forgotten    []forgotten    // of this round

	tried, cancelled int // messages of its own that this rank wanted to cancel, and has cancelled
	late             int // receives of its own that have ended by a deadline
	freed            int // buffers of mpi.Alloc
}

func newRank(world *mpi.Comm, seed uint64) (*rank, error) {
	r := &rank{world: world, seed: seed}
	for l := range r.lanes {
		c, err := world.Dup()
		if err != nil {
			return nil, err
		}
		r.lanes[l] = c
	}
	for _, c := range []**mpi.Comm{&r.calls, &r.cancels, &r.deadlineComm, &r.lent} {
		var err error
		if *c, err = world.Dup(); err != nil {
			return nil, err
		}
	}
	return r, nil
}

func (r *rank) free() error {
	for _, c := range append(r.lanes[:], r.calls, r.cancels, r.deadlineComm, r.lent) {
		if err := c.Free(); err != nil {
			return err
		}
	}
	return nil
}

// play plays one round: for each lane a goroutine that sends and one that receives, the callers, and one each for what
// is cancelled, hurried and lent. The first error ends it without waiting for the others, which may wait for what will
// not come.
func (r *rank) play(round plan) error {
	defer r.churn(round.round)()
	me := r.world.Rank()
	receivers := make([]*receiver, 0, lanes)
	for l := range lanes {
		receives := &receiver{comm: r.lanes[l], lane: l, expected: round.into(me, l), round: round.round}
		receivers = append(receivers, receives)
		if round.early {
			if err := receives.post(); err != nil {
				return err
			}
		}
	}
	if round.early {
		if err := mpi.Barrier(r.world); err != nil {
			return err
		}
	}
	results := make(chan error)
	tasks := 0
	start := func(f func() error) {
		tasks++
		go func() { results <- f() }()
	}
	for l := range lanes {
		start(func() error { return sendAll(r.lanes[l], round, round.from(me, l)) })
		start(receivers[l].run)
	}
	for caller := range callers {
		start(func() error { return r.call(round.round, caller) })
	}
	for _, f := range []func(int) error{r.cancelSome, r.deadlines, r.lend} {
		start(func() error { return f(round.round) })
	}
	for range tasks {
		if err := <-results; err != nil {
			return err
		}
	}
	if err := mpi.WaitAll(r.open...); err != nil {
		return err
	}
	r.open = r.open[:0]
	if err := r.checkForgotten(round.round); err != nil {
		return err
	}
	// A rank that is ahead may not send into this round's receives: some of them take anything.
	return mpi.Barrier(r.world)
}

// sendAll sends one rank's messages of a lane in order, and waits for the nonblocking ones at the end.
func sendAll(c *mpi.Comm, round plan, messages []message) error {
	var open []*mpi.Request
	for _, m := range messages {
		buf := make([]byte, m.length)
		harness.Fill(buf, round.round, m.number)
		r, err := sendOne(c, m, buf)
		if err != nil {
			return fmt.Errorf("%v of message %d: %w", m.mode, m.number, err)
		}
		if r != nil {
			open = append(open, r)
		}
	}
	return mpi.WaitAll(open...)
}

func sendOne(c *mpi.Comm, m message, buf []byte) (*mpi.Request, error) {
	switch m.mode {
	case isend:
		return mpi.Isend(c, buf, m.to, m.tag)
	case issend:
		return mpi.Issend(c, buf, m.to, m.tag)
	case ssend:
		return nil, mpi.Ssend(c, buf, m.to, m.tag)
	case bsend:
		return nil, mpi.Bsend(c, buf, m.to, m.tag)
	case rsend:
		return nil, mpi.Rsend(c, buf, m.to, m.tag)
	default:
		return nil, mpi.Send(c, buf, m.to, m.tag)
	}
}

// call is one goroutine that exchanges messages with its counterparts on the neighbouring ranks, under its own tag.
func (r *rank) call(round, caller int) error {
	me, n := r.calls.Rank(), r.calls.Size()
	left, right := (me+n-1)%n, (me+1)%n
	out, in := make([]byte, 4096), make([]byte, 4096)
	for i := range calls {
		length := (round*31 + caller*17 + i*131) % len(out)
		harness.Fill(out[:length], round, me*1000+i)
		status, err := mpi.Sendrecv(r.calls, out[:length], right, caller, in, left, caller)
		if err != nil {
			return err
		}
		if int(status.Bytes) != length || !harness.Check(in[:length], round, left*1000+i) {
			return fmt.Errorf("caller %d: call %d from rank %d brought %d bytes, wanted %d, or wrong ones",
				caller, i, left, status.Bytes, length)
		}
		progress.Add(1)
	}
	return nil
}
