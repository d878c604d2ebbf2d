// Latency_persistent measures how long a message takes from one rank to another when its request is made once.
//
//	gorun -n 2 ./benchmarks/latency_persistent [-m MIN:MAX] [-i N | --time SECONDS] [-x N]
//	                                           [--warm-time SECONDS] [-c] [-f] [--alloc] [--json]
//	                                           [--plot FILE]
//
// The ping-pong of benchmarks/latency with persistent requests: for each size SendInit and RecvInit make the two
// requests of a rank before the clock runs; each message is then Start and Wait of one of them. All else (clock,
// buffers, -f, -c) is as in latency.
//
// Options, rounds and output are as in osu_latency_persistent 7.4.
//
// Owns: the persistent requests.
// May call: mpi, benchmarks/harness, benchmarks/internal/*.
// Never: reach into the runtime.
package main

import (
	"github.com/gorun-mpi/mpi"
	"github.com/gorun-mpi/mpi/benchmarks/harness"
	"github.com/gorun-mpi/mpi/benchmarks/internal/bench"
	"github.com/gorun-mpi/mpi/benchmarks/internal/picture"
)

var program = harness.Program{
	Name: "latency_persistent", Title: "OSU MPI Latency Persistent Test", Ranks: 2, Takes: "mixXTMcfaz",
	About:    "Measures the time of a message from one rank to another, by requests that are made once.",
	Defaults: harness.LatencyDefaults(),
	Buffers:  func(harness.Options) int64 { return 2 },
	Draw:     picture.Draw,
}

func main() { bench.Main(program, run) }

func run(j *bench.Job) error {
	pair, err := bench.NewPair(j, 1-j.Rank, j.Rank == 0)
	if err != nil {
		return err
	}
	p := &persistent{Pair: pair}
	if err := bench.NewMeter(j, j.Rank == 0, false).Latency(p); err != nil {
		return err
	}
	return p.freeRequests()
}

// persistent is one side of the ping-pong, with requests for the present size.
type persistent struct {
	*bench.Pair
	first, second *mpi.Request // of a round trip
}

// Resize implements bench.Rounds.
func (p *persistent) Resize(size int64) error {
	if err := p.freeRequests(); err != nil {
		return err
	}
	if err := p.Pair.Resize(size); err != nil {
		return err
	}
	send, err := mpi.SendInit(p.World, p.Send, p.Partner, p.Tag)
	if err != nil {
		return err
	}
	recv, err := mpi.RecvInit(p.World, p.Recv, p.Partner, p.Tag)
	if err != nil {
		return err
	}
	p.first, p.second = send, recv
	if !p.Serves {
		p.first, p.second = recv, send
	}
	return nil
}

func (p *persistent) freeRequests() error {
	for _, r := range []*mpi.Request{p.first, p.second} {
		if r == nil {
			continue
		}
		if err := r.Free(); err != nil {
			return err
		}
	}
	p.first, p.second = nil, nil
	return nil
}

// Play implements bench.Rounds.
func (p *persistent) Play(n int) error {
	first, second := p.first, p.second
	for range n {
		if err := first.Start(); err != nil {
			return err
		}
		if _, err := first.Wait(); err != nil {
			return err
		}
		if err := second.Start(); err != nil {
			return err
		}
		if _, err := second.Wait(); err != nil {
			return err
		}
	}
	return nil
}
