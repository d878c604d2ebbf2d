package main

import (
	"fmt"

	"github.com/gorun-mpi/mpi"
	"github.com/gorun-mpi/mpi/benchmarks/harness"
)

const (
	callers = 8  // goroutines of a rank that call other ranks beside the lanes
	calls   = 25 // of each of them in a round
)

// party is one rank: a communicator for each lane, and one for the callers.
type party struct {
	world *mpi.Comm
	lanes [lanes]*mpi.Comm
	calls *mpi.Comm
	quits *mpi.Comm
	taken int            // messages that this rank has taken back
	open  []*mpi.Request // sends of quit that end when the neighbour has received them
}

func newParty(world *mpi.Comm) (*party, error) {
	p := &party{world: world}
	for l := range p.lanes {
		c, err := world.Dup()
		if err != nil {
			return nil, err
		}
		p.lanes[l] = c
	}
	for _, c := range []**mpi.Comm{&p.calls, &p.quits} {
		var err error
		if *c, err = world.Dup(); err != nil {
			return nil, err
		}
	}
	return p, nil
}

func (p *party) free() error {
	for _, c := range append(p.lanes[:], p.calls, p.quits) {
		if err := c.Free(); err != nil {
			return err
		}
	}
	return nil
}

// play plays one round: for each lane a goroutine that sends and one that receives, the callers, and one that
// changes its mind. The first error
// ends it without waiting for the others, which may wait for what will not come.
func (p *party) play(round plan) error {
	rank := p.world.Rank()
	receives := make([]*reception, 0, lanes)
	for l := range lanes {
		r := &reception{comm: p.lanes[l], lane: l, expected: round.into(rank, l), round: round.round}
		receives = append(receives, r)
		if round.early {
			if err := r.post(); err != nil {
				return err
			}
		}
	}
	if round.early {
		if err := mpi.Barrier(p.world); err != nil {
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
		start(func() error { return sendAll(p.lanes[l], round, round.from(rank, l)) })
		start(receives[l].run)
	}
	for caller := range callers {
		start(func() error { return p.call(round.round, caller) })
	}
	start(func() error { return p.quit(round.round) })
	for range tasks {
		if err := <-results; err != nil {
			return err
		}
	}
	if err := mpi.WaitAll(p.open...); err != nil {
		return err
	}
	p.open = p.open[:0]
	// A rank that is ahead may not send into this round's receives: some of them take anything.
	return mpi.Barrier(p.world)
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

// reception is what one rank receives on one lane in a round.
type reception struct {
	comm     *mpi.Comm
	lane     lane
	round    int
	expected []message
	requests []*mpi.Request // posted, in the order of expected; buffers[i] belongs to requests[i] until it is waited for
	buffers  [][]byte
}

// post posts a receive for each message. A receive that may get another message than its own has room for any.
func (r *reception) post() error {
	if r.lane == probed {
		return nil
	}
	longest := 0
	for _, m := range r.expected {
		longest = max(longest, m.length)
	}
	for _, m := range r.expected {
		source, tag, room := m.source, m.tag, m.length
		if r.lane == anySource || r.lane == anyBoth {
			source = mpi.AnySource
		}
		if r.lane == anyTag || r.lane == anyBoth {
			tag = mpi.AnyTag
		}
		if r.lane != exact {
			room = longest
		}
		buf := make([]byte, room)
		request, err := mpi.Irecv(r.comm, buf, source, tag)
		if err != nil {
			return err
		}
		r.requests, r.buffers = append(r.requests, request), append(r.buffers, buf)
	}
	return nil
}

// run receives and judges everything. The error names the lane.
func (r *reception) run() error {
	if err := r.receive(); err != nil {
		return fmt.Errorf("lane %v: %w", r.lane, err)
	}
	return nil
}

func (r *reception) receive() error {
	j := newJudge(r.round, r.lane, r.expected)
	if r.lane == probed {
		return r.probe(j)
	}
	if r.requests == nil {
		if err := r.post(); err != nil {
			return err
		}
	}
	for i, request := range r.requests {
		status, err := request.Wait()
		if err != nil {
			return err
		}
		n := int(status.Bytes)
		if n > len(r.buffers[i]) {
			return fmt.Errorf("a Status of %d bytes for a buffer of %d", n, len(r.buffers[i]))
		}
		if err := j.received(status.Source, status.Tag, n, r.buffers[i][:n]); err != nil {
			return err
		}
		r.buffers[i] = nil
	}
	return j.done()
}

// probe receives each message after a matched probe, into a buffer of just its length.
func (r *reception) probe(j *judge) error {
	for range r.expected {
		m, status, err := mpi.Mprobe(r.comm, mpi.AnySource, mpi.AnyTag)
		if err != nil {
			return err
		}
		buf := make([]byte, status.Bytes)
		got, err := mpi.Mrecv(m, buf)
		if err != nil {
			return err
		}
		if got.Source != status.Source || got.Tag != status.Tag || got.Bytes != status.Bytes {
			return fmt.Errorf("Mprobe said %+v, Mrecv %+v", status, got)
		}
		if err := j.received(got.Source, got.Tag, int(got.Bytes), buf); err != nil {
			return err
		}
	}
	return j.done()
}

// call is one goroutine that talks with its like on the neighbouring ranks, under its own tag.
func (p *party) call(round, caller int) error {
	rank, n := p.calls.Rank(), p.calls.Size()
	left, right := (rank+n-1)%n, (rank+1)%n
	out, in := make([]byte, 4096), make([]byte, 4096)
	for i := range calls {
		length := (round*31 + caller*17 + i*131) % len(out)
		harness.Fill(out[:length], round, rank*1000+i)
		status, err := mpi.Sendrecv(p.calls, out[:length], right, caller, in, left, caller)
		if err != nil {
			return err
		}
		if int(status.Bytes) != length || !harness.Check(in[:length], round, left*1000+i) {
			return fmt.Errorf("caller %d: call %d from rank %d brought %d bytes, wanted %d, or wrong ones", caller, i, left, status.Bytes, length)
		}
	}
	return nil
}
