package bench

import (
	"github.com/gorun-mpi/mpi"
	"github.com/gorun-mpi/mpi/benchmarks/harness"
)

// NoPartner is the partner of a rank that has none and takes part in collective calls only.
const NoPartner = -1

// Pair is one side of a ping-pong. A message of n bytes uses the first n of each buffer.
type Pair struct {
	World      *mpi.Comm
	Partner    int
	Tag        int
	Serves     bool // sends first
	Send, Recv []byte
	whole      [2][]byte // Send and Recv are their beginnings
}

// NewPair makes the side of a rank that exchanges messages with partner.
func NewPair(j *Job, partner int, serves bool) (*Pair, error) {
	p := &Pair{World: j.World, Partner: partner, Serves: serves, Tag: PingTag}
	for i := range p.whole {
		var err error
		if p.whole[i], err = j.Memory(int(j.Options.MaxSize)); err != nil {
			return nil, err
		}
	}
	return p, p.Resize(0)
}

// Resize implements Rounds.
func (p *Pair) Resize(size int64) error {
	p.Send, p.Recv = p.whole[0][:size], p.whole[1][:size]
	return nil
}

// Play implements Rounds: n round trips.
func (p *Pair) Play(n int) error {
	switch {
	case p.Partner == NoPartner:
		return nil
	case p.Serves:
		return p.serve(n)
	}
	return p.answer(n)
}

func (p *Pair) serve(n int) error {
	world, send, recv, partner, tag := p.World, p.Send, p.Recv, p.Partner, p.Tag
	for range n {
		if err := mpi.Send(world, send, partner, tag); err != nil {
			return err
		}
		if _, err := mpi.Recv(world, recv, partner, tag); err != nil {
			return err
		}
	}
	return nil
}

func (p *Pair) answer(n int) error {
	world, send, recv, partner, tag := p.World, p.Send, p.Recv, p.Partner, p.Tag
	for range n {
		if _, err := mpi.Recv(world, recv, partner, tag); err != nil {
			return err
		}
		if err := mpi.Send(world, send, partner, tag); err != nil {
			return err
		}
	}
	return nil
}

// Fill implements Rounds.
func (p *Pair) Fill(round int) {
	if p.Partner != NoPartner {
		harness.Fill(p.Send, round, p.World.Rank())
		clear(p.Recv)
	}
}

// Check implements Rounds.
func (p *Pair) Check(round int) int64 {
	if p.Partner != NoPartner && !harness.Check(p.Recv, round, p.Partner) {
		return 1
	}
	return 0
}

// PartnerIn is the partner of a rank, where rank i and rank i + pairs are one pair, and whether the rank is the first
// of the two.
func PartnerIn(pairs, rank int) (partner int, first bool) {
	switch {
	case rank < pairs:
		return rank + pairs, true
	case rank < 2*pairs:
		return rank - pairs, false
	}
	return NoPartner, false
}
