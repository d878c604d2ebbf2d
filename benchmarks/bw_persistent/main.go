// Bw_persistent measures how many bytes a second one rank can send to another by requests that are made once.
//
//	gorun -n 2 ./benchmarks/bw_persistent [-m MIN:MAX] [-i N | --time SECONDS] [-x N]
//	                                      [--warm-time SECONDS] [-W N] [-b single|multiple] [-c] [-f]
//	                                      [--alloc] [--json] [--plot FILE]
//
// The windows of benchmarks/bw with persistent requests: for each size SendInit on rank 0 and RecvInit on rank 1 make
// the requests of a window before the clock runs; each window is then StartAll, WaitAll and the answer. All else
// (clock, buffers, -b, -f, -c) is as in bw.
//
// Options, rounds and output are as in osu_bw_persistent 7.4.
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
	Name: "bw_persistent", Title: "OSU MPI Bandwidth Persistent Test", Ranks: 2, Takes: "mixXTWbMcfaz",
	About:    "Measures the bandwidth from one rank to another, by requests that are made once.",
	Defaults: harness.BandwidthDefaults(),
	Buffers:  bench.BuffersOf(1),
	Draw:     picture.Draw,
}

const tag = 100

func main() { bench.Main(program, run) }

func run(j *bench.Job) error {
	window, err := bench.NewWindow(j, 1-j.Rank, j.Rank == 0)
	if err != nil {
		return err
	}
	p := &persistent{Window: window}
	report := program.Report(j.Output, harness.Megabytes)
	if err := bench.NewMeter(j, j.Rank == 0, false).Bandwidth(report, p, j.Options.Window); err != nil {
		return err
	}
	return p.freeRequests()
}

// persistent is one side of the windows, with requests for the present size.
type persistent struct{ *bench.Window }

// Resize implements bench.Rounds.
func (p *persistent) Resize(size int64) error {
	if err := p.freeRequests(); err != nil {
		return err
	}
	if err := p.Window.Resize(size); err != nil {
		return err
	}
	for i := range p.Requests {
		buf := p.Buffers[i%len(p.Buffers)]
		var err error
		if p.Sends {
			p.Requests[i], err = mpi.SendInit(p.World, buf, p.Partner, tag)
		} else {
			p.Requests[i], err = mpi.RecvInit(p.World, buf, p.Partner, tag)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (p *persistent) freeRequests() error {
	for i, r := range p.Requests {
		if r == nil {
			continue
		}
		if err := r.Free(); err != nil {
			return err
		}
		p.Requests[i] = nil
	}
	return nil
}

// Play implements bench.Rounds.
func (p *persistent) Play(n int) error {
	for range n {
		if err := mpi.StartAll(p.Requests...); err != nil {
			return err
		}
		if err := p.Wait(); err != nil {
			return err
		}
		if err := p.Answer(); err != nil {
			return err
		}
	}
	return nil
}
