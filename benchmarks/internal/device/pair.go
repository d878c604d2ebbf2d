package device

import (
	"github.com/gorun-mpi/mpi"
	"github.com/gorun-mpi/mpi/benchmarks/internal/bench"
	"github.com/gorun-mpi/mpi/gpu"
)

// PingPong is the side of a rank in a ping-pong, on the device where -d says so.
func PingPong(j *bench.Job, device, partner int, serves bool) (bench.Rounds, error) {
	if device == mpi.Undefined {
		return bench.PingPong(j, partner, serves)
	}
	p := &pair{world: j.World, partner: partner, serves: serves}
	var err error
	if p.send, err = newBuffer(j, device); err == nil {
		p.recv, err = newBuffer(j, device)
	}
	return p, err
}

// pair is one side of a ping-pong.
type pair struct {
	world      *mpi.Comm
	partner    int
	serves     bool // sends first
	send, recv buffer
	mishap
}

// Resize implements bench.Rounds.
func (p *pair) Resize(size int64) error {
	p.send.resize(size)
	p.recv.resize(size)
	return nil
}

// Play implements bench.Rounds: n round trips.
func (p *pair) Play(n int) error {
	if p.err != nil {
		return p.err
	}
	world, send, recv, partner := p.world, p.send.now, p.recv.now, p.partner
	for range n {
		if p.serves {
			if err := gpu.Send(world, send, partner, bench.PingTag); err != nil {
				return err
			}
		}
		if _, err := gpu.Recv(world, recv, partner, bench.PingTag); err != nil {
			return err
		}
		if !p.serves {
			if err := gpu.Send(world, send, partner, bench.PingTag); err != nil {
				return err
			}
		}
	}
	return nil
}

// Fill implements bench.Rounds.
func (p *pair) Fill(round int) {
	p.add(p.send.fill(round, p.world.Rank()))
	p.add(p.recv.clear())
}

// Check implements bench.Rounds.
func (p *pair) Check(round int) int64 {
	right, err := p.recv.holds(round, p.partner)
	p.add(err)
	if right {
		return 0
	}
	return 1
}
